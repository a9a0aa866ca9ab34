"""Where commands read runs: the store of the environment, or a server that is named."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from leasehold.adapters.clock import SystemClock
from leasehold.console.opening import to_read
from leasehold.domain.manifest import Manifest
from leasehold.domain.summary import Summary, summary_of
from leasehold.domain.trace import TraceEvent
from leasehold.errors import InvalidRequestError, ServerRefusedError, ServerUnreachableError
from leasehold.services.engine import Engine
from leasehold.services.read_runs import RunFilter, get_run, list_runs, timeline_of
from leasehold.services.start_run import StartRequest

_TIMEOUT_S: Final = 30.0
_NOT_NOW: Final = 503

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
        return get_run(self.engine, run_id)

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        return timeline_of(self.engine, run_id)

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
        if not _is_http(url):
            allowed = "http://HOST:PORT or https://HOST"
            raise InvalidRequestError(field="--url", value=url, allowed=allowed)
        self.url = url.rstrip("/")

    def start(self, request: StartRequest) -> tuple[bool, Summary]:
        """Start a run; return whether it is new, and the run."""
        body = {"pipeline": request.pipeline, "input": request.input}
        body["idempotencyKey"] = request.idempotency_key
        body["labels"] = dict(request.labels)
        status, run = self._call("/runs", body)
        return status == 201, self._read(Summary.model_validate, run)  # noqa: PLR2004 - created

    def get(self, run_id: str) -> Manifest:
        """Return one run."""
        return self._read(Manifest.model_validate, self._call(f"/runs/{quote(run_id, safe='')}")[1])

    def trace(self, run_id: str) -> list[TraceEvent]:
        """Return all that happened to one run, oldest first."""
        answer = self._call(f"/runs/{quote(run_id, safe='')}/trace")[1]
        return self._read(
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
        answer = self._call(f"/runs?{urlencode(given)}")[1]
        return self._read(
            lambda found: Listed(
                [Summary.model_validate(run) for run in found["runs"]], found["nextPageToken"]
            ),
            answer,
        )

    def now(self) -> datetime:
        """Return the time here; a server tells none."""
        return SystemClock().now()

    def _read(self, read: Callable[[Any], T], answer: Any) -> T:
        """Return an answer as it is meant, or say that this is no runs API."""
        try:
            return read(answer)
        except (ValueError, KeyError, TypeError):
            message = f"{self.url} answers, but not as the runs API of this version does."
            raise ServerRefusedError(message=message) from None

    def _call(self, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            request = urllib.request.Request(f"{self.url}{path}", data=data, headers=headers)  # noqa: S310 - http, as checked above
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == _NOT_NOW:
                raise ServerUnreachableError(url=self.url, problem=_message(error)) from None
            raise ServerRefusedError(message=_message(error), url=self.url) from None
        except (OSError, ValueError) as error:
            problem = getattr(error, "reason", None) or error
            raise ServerUnreachableError(url=self.url, problem=problem) from None


def _is_http(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:  # brackets of an address that do not match
        return False


def patiently(look: Callable[[], T]) -> Callable[[], T]:
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


def _message(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            return str(json.load(error)["error"]["message"])
        except (ValueError, KeyError, TypeError):
            return f"{error.code} {error.reason}"
