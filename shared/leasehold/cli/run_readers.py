"""Where commands read runs: the store of the environment, or a server that is named."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeVar
from urllib.parse import urlencode

from leasehold.api.batch import BatchBody, BatchResponse
from leasehold.api.operations import ACTOR_HEADER, body_of
from leasehold.api.runs import RunsQuery, RunsResponse, StartBody, TraceResponse
from leasehold.bootstrap import system_clock
from leasehold.cli.bundle import bundle_to_read
from leasehold.cli.http_client import RunsApi, path_of
from leasehold.domain.manifest import Manifest, manifest_of
from leasehold.domain.summary import Summary
from leasehold.domain.trace import TraceEvent
from leasehold.errors import ServerUnreachableError
from leasehold.services.batch import BatchResult
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest
from leasehold.services.read_runs import RunFilter, list_runs, read_run, read_timeline
from leasehold.services.start_run import StartRequest

#: How long somebody who waits for a run bears with a server that does not answer.
PATIENCE_S: Final = 20.0
_LOOK_AGAIN_S: Final = 0.2
#: A thousand runs, each with a commit of its own.
_BATCH_TIMEOUT_S: Final = 900.0

T = TypeVar("T")


class Source(Protocol):
    """Runs, wherever they are kept."""

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        ...

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        ...

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> RunsResponse:
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

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> RunsResponse:
        """Return the runs that fit, newest first."""
        page = list_runs(self.engine, wanted, limit=limit, page_token=token)
        return RunsResponse.of(page)

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
        status, run = self._api.call("/runs", StartBody.of(request).to_json())
        return status == 201, self._api.read(Summary.model_validate, run)  # noqa: PLR2004 - created

    def operate(self, run_id: str, request: OperationRequest) -> Summary:
        """Do an operation; return the run, after a recreate the new one."""
        path = f"{path_of(run_id)}:{request.operation}"
        body, headers = body_of(request).to_json(), _named(request.actor)
        _, run = self._api.call(path, body, headers=headers)
        return self._api.read(Summary.model_validate, run)

    def batch(
        self, request: OperationRequest, wanted: RunFilter, *, limit: int, dry_run: bool
    ) -> BatchResult:
        """Do an operation on all runs that fit; each of them is a commit of its own."""
        body = BatchBody.of(request, wanted, limit=limit, dry_run=dry_run).to_json()
        _, answer = self._api.call(
            "/runs:batch", body, headers=_named(request.actor), timeout=_BATCH_TIMEOUT_S
        )
        return self._api.read(BatchResponse.model_validate, answer).to_result()

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        _, run = self._api.call(path_of(run_id))
        return self._api.read(lambda found: manifest_of(run_id, found), run)

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        _, answer = self._api.call(f"{path_of(run_id)}/trace")
        return self._api.read(TraceResponse.model_validate, answer).events

    def page(self, wanted: RunFilter, limit: int, token: str | None) -> RunsResponse:
        """Return the runs that fit, newest first."""
        query = RunsQuery.page_of(wanted, limit, token).to_texts()
        _, answer = self._api.call(f"/runs?{urlencode(query)}")
        return self._api.read(RunsResponse.model_validate, answer)

    def now(self) -> datetime:
        """Return the time of this machine; the API has none."""
        return system_clock().now()


def _named(actor: str) -> dict[str, str]:
    """Return the header that says who asks: UTF-8, in the way that headers are sent."""
    return {ACTOR_HEADER: actor.encode(errors="replace").decode("latin-1")}


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
