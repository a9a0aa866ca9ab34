"""Runs of a store, as this process reads them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pydantic_core

from leasehold.api.results import FilesResponse
from leasehold.api.runs import RunsResponse
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent
from leasehold.ports.artifacts import ArtifactContent
from leasehold.services.engine import Engine
from leasehold.services.read_results import list_files, open_file, read_output
from leasehold.services.read_runs import RunFilter, list_runs, read_run, read_timeline


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Runs of the store that the environment names."""

    engine: Engine

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        return read_run(self.engine, run_id)

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        return read_timeline(self.engine, run_id)

    def output(self, run_id: str, step: str | None = None) -> Any:
        """Return the output of one step, or of the whole run."""
        return pydantic_core.from_json(read_output(self.engine, run_id, step))

    def files(self, run_id: str, page_token: str | None = None) -> FilesResponse:
        """Return a page of the files of one run."""
        return FilesResponse.of(list_files(self.engine, run_id, page_token=page_token))

    def open_file(self, run_id: str, name: str) -> AbstractContextManager[ArtifactContent]:
        """Open a file of one run, to be read in blocks."""
        return open_file(self.engine, run_id, name)

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> RunsResponse:
        """Return the runs that fit, newest first."""
        page = list_runs(self.engine, wanted, limit=limit, page_token=token)
        return RunsResponse.of(page)

    def now(self) -> datetime:
        """Return the time of the store."""
        return self.engine.clock.now()
