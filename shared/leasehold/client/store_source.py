"""Runs of a store, as this process reads them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from leasehold.api.runs import RunsResponse
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent
from leasehold.services.engine import Engine
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

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> RunsResponse:
        """Return the runs that fit, newest first."""
        page = list_runs(self.engine, wanted, limit=limit, page_token=token)
        return RunsResponse.of(page)

    def now(self) -> datetime:
        """Return the time of the store."""
        return self.engine.clock.now()
