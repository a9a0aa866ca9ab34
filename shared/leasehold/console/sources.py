"""Where commands read runs: the store of the environment, or a server that is named."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeVar
from urllib.parse import urlencode

from leasehold.bootstrap import system_clock
from leasehold.console.opening import to_read
from leasehold.console.runs_api import RunsApi, path_of
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.summary import Summary, summary_of
from leasehold.domain.trace import TraceEvent
from leasehold.errors import ServerUnreachableError
from leasehold.services.engine import Engine
from leasehold.services.read_runs import RunFilter, list_runs, read_run, read_timeline
from leasehold.services.start_run import StartRequest

#: How long a server that does not answer is waited for by who waits for a run.
PATIENCE_S: Final = 20.0
_LOOK_AGAIN_S: Final = 0.2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of runs, and where the next one begins."""

    runs: list[Summary]
    next_page_token: str | None


class Source(Protocol):
    """Runs, wherever they are kept."""

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        ...

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        ...

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> Listed:
        """Return the runs that fit, newest first."""
        ...

    def now(self) -> datetime:
        """Return the time."""
        ...


@contextlib.contextmanager
def source_at(url: str | None) -> Iterator[Source]:
    """Open the server at `url`, or without one the store of the environment."""
    if url is not None:
        yield ServerSource(url)
        return
    with to_read() as bundle:
        yield StoreSource(bundle.engine)


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

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> Listed:
        """Return the runs that fit, newest first."""
        page = list_runs(self.engine, wanted, limit=limit, page_token=token)
        return Listed([summary_of(run) for run in page.runs], page.next_page_token)

    def now(self) -> datetime:
        """Return the time of the store."""
        return self.engine.clock.now()


class ServerSource:
    """Runs of a server, over its runs API.

    Raises, in each method:
        ServerUnreachableError: it does not answer.
        ServerRefusedError: it answers with an error.
    """

    def __init__(self, url: str) -> None:
        self._api = RunsApi(url)
        self.url = self._api.url

    def start(self, request: StartRequest) -> tuple[bool, Summary]:
        """Start a run; return whether it is new, and the run."""
        body = {"pipeline": request.pipeline, "input": request.input}
        body["idempotencyKey"] = request.idempotency_key
        body["labels"] = dict(request.labels)
        status, run = self._api.call("/runs", body)
        return status == 201, self._api.read(Summary.model_validate, run)  # noqa: PLR2004 - created

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        _, run = self._api.call(path_of(run_id))
        return self._api.read(lambda found: manifest_of(run_id, found), run)

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        _, answer = self._api.call(f"{path_of(run_id)}/trace")
        return self._api.read(
            lambda found: [TraceEvent.model_validate(event) for event in found["events"]], answer
        )

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> Listed:
        """Return the runs that fit, newest first."""
        asked = {
            "status": wanted.status,
            "pipeline": wanted.pipeline,
            "deadLettered": None if wanted.dead_lettered is None else "true",
            "label": wanted.label,
            "limit": str(limit),
            "pageToken": token,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        _, answer = self._api.call(f"/runs?{urlencode(given)}")
        return self._api.read(
            lambda found: Listed(
                [Summary.model_validate(run) for run in found["runs"]], found["nextPageToken"]
            ),
            answer,
        )

    def now(self) -> datetime:
        """Return the time here; a server tells none."""
        return system_clock().now()


def retry_unreachable(look: Callable[[], T]) -> Callable[[], T]:
    """Return the look, which bears a server that is away for a moment, as while it restarts."""

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
