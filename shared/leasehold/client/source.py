"""Where runs are read and changed: a server, or a store."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from leasehold.api.results import FilesResponse
from leasehold.api.runs import RunsResponse
from leasehold.domain.manifest import Manifest
from leasehold.domain.trace import TraceEvent
from leasehold.errors import ServerUnreachableError
from leasehold.ports.artifacts import ArtifactContent
from leasehold.services.read_runs import RunFilter

#: How long somebody who waits for a run bears with a server that does not answer.
PATIENCE_S: Final = 20.0
_LOOK_AGAIN_S: Final = 0.2

T = TypeVar("T")


class Source(Protocol):
    """Runs, wherever they are kept."""

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        ...

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        ...

    def output(self, run_id: str, step: str | None = None) -> Any:
        """Return the output of one step, or of the whole run; raises as `read_output`."""
        ...

    def files(self, run_id: str, page_token: str | None = None) -> FilesResponse:
        """Return a page of the files of one run."""
        ...

    def open_file(self, run_id: str, name: str) -> AbstractContextManager[ArtifactContent]:
        """Open a file of one run, to be read in blocks."""
        ...

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> RunsResponse:
        """Return the runs that fit, newest first."""
        ...

    def now(self) -> datetime:
        """Return the time."""
        ...


def retry_unreachable(look: Callable[[], T]) -> Callable[[], T]:
    """Return `look`, repeated while the server is unreachable for a moment, as in a restart."""

    def again() -> T:
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                return look()
            except ServerUnreachableError:
                if time.monotonic() > give_up:
                    raise
            time.sleep(_LOOK_AGAIN_S)

    return again
