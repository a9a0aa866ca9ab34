"""Where commands read runs: the store of the environment, or a server that is named."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlencode

from leasehold.adapters.clock import SystemClock
from leasehold.cli.bundle import bundle_to_read
from leasehold.cli.http_client import RunsApi, path_of
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.summary import Summary, summary_of
from leasehold.domain.trace import TraceEvent
from leasehold.errors import ServerUnreachableError
from leasehold.services.batch import BatchResult
from leasehold.services.engine import Engine
from leasehold.services.operate import AS_BEFORE, OperationRequest
from leasehold.services.read_runs import RunFilter, list_runs, read_run, read_timeline
from leasehold.services.start_run import StartRequest

#: How long a server that does not answer is waited for by who waits for a run.
PATIENCE_S: Final = 20.0
_LOOK_AGAIN_S: Final = 0.2
#: A thousand runs, each with a commit of its own.
_BATCH_TIMEOUT_S: Final = 900.0

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
    with bundle_to_read() as bundle:
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

    def operate(self, run_id: str, request: OperationRequest) -> Summary:
        """Do an operation; return the run, after a recreate the new one."""
        given = {
            "reason": request.reason,
            "fromStep": request.from_step,
            "labels": request.labels,
            "generation": request.generation,
            "step": request.step,
        }
        body = {name: value for name, value in given.items() if value}
        if request.input is not AS_BEFORE:
            body["input"] = request.input
        path = f"{path_of(run_id)}:{request.operation}"
        _, run = self._api.call(path, body, headers=_named(request.actor))
        return self._api.read(Summary.model_validate, run)

    def batch(
        self, request: OperationRequest, wanted: RunFilter, *, limit: int, dry_run: bool
    ) -> BatchResult:
        """Do an operation on all runs that fit; each of them is a commit of its own."""
        filters = {
            "status": wanted.status,
            "pipeline": wanted.pipeline,
            "deadLettered": wanted.dead_lettered,
            "label": wanted.label,
        }
        body: dict[str, Any] = {
            "action": request.operation.value,
            "filter": {name: value for name, value in filters.items() if value is not None},
            "limit": limit,
            "dryRun": dry_run,
            "reason": request.reason,
        }
        if request.from_step is not None:
            body["fromStep"] = request.from_step
        if request.step is not None:
            body["step"] = request.step
        headers = _named(request.actor)
        _, answer = self._api.call("/runs:batch", body, headers=headers, timeout=_BATCH_TIMEOUT_S)
        return self._api.read(
            lambda result: BatchResult(
                result["matched"],
                result["changed"],
                [(run["runId"], run["code"]) for run in result["refused"]],
            ),
            answer,
        )

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
        return SystemClock().now()


def _named(actor: str) -> dict[str, str]:
    """Return the header that says who asks: UTF-8, in the way that headers are sent."""
    return {"X-Leasehold-Actor": actor.encode(errors="replace").decode("latin-1")}


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
