"""The application: the runs API and the API of leases at one address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import flask

from leasehold.api import calls
from leasehold.api.call_row import Answer, AnyRow, CallRequest, CallRow, Created, Given, JsonText
from leasehold.api.registry import HealthResponse
from leasehold.api.runs import StartBody
from leasehold.domain.summary import Summary
from leasehold.errors import NotReadyError
from leasehold.in_process import InProcessEngine
from leasehold.services.engine import Engine
from leasehold.web import manage_lease, serve_api
from leasehold.web.entry import entry
from leasehold.web.loopback_guard import LoopbackCallers, refusal_of
from leasehold.web.routes import Routes

_ROUTES: Final = Routes((*serve_api.ROUTES.rows, *manage_lease.ROUTES.rows))


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The engine of the workers of this process, for the answers as well.

    So a run that is started gets an idle worker in the same commit, what an operation dispatches
    is in the workers' own queue, and a handler whose run is cancelled hears of it.

    Args:
        local: the engine.
        callers: no one signs in; pages of strangers are kept off.
    """

    local: InProcessEngine
    callers: LoopbackCallers

    def answer(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        """Answer a request with the engine."""
        own: Mapping[AnyRow, Any] = {
            calls.start: self._start,
            calls.ready: self._ready,
            calls.openapi: self._openapi,
        }
        answered: Answer = own.get(row, row.answer)(self.local.engine, request)
        return answered

    def _start(self, _: Engine, request: CallRequest[StartBody]) -> Created[Summary]:
        """Start a run; an idle worker has its lease when this returns."""
        return calls.started(self.local.start_run(request.given.to_request()))

    def _ready(self, engine: Engine, request: CallRequest[None]) -> HealthResponse:
        """Say that it could work, if the clockwork has looked lately, too."""
        if not self.local.looks_after_runs:
            problem = "it still takes up the runs of the store, or its clockwork hangs"
            raise NotReadyError(problem=problem)
        return calls.ready.answer(engine, request)

    def _openapi(self, _engine: Engine, _: CallRequest[None]) -> JsonText:
        return calls.specified(_ROUTES.rows)


def make_app(
    local: InProcessEngine, hosts: Sequence[str] | None
) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Return the application, behind what strangers' web pages cannot pass.

    Args:
        local: the engine.
        hosts: by which it may be called; see `LoopbackGuard`.
    """
    source = LocalEngine(local, LoopbackCallers(hosts))

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        response = _answer(source, flask.Request(environ))
        answered: Iterable[bytes] = response(environ, start_response)
        return answered

    return answer


def body_limit(head: Mapping[str, str], hosts: Sequence[str] | None) -> int:
    """Return how many bytes the body of a request may have; 0: it is refused, whatever it has.

    Args:
        head: the request without its body, as WSGI has it.
        hosts: by which it may be called.
    """
    if refusal_of(dict(head), hosts) is not None:
        return 0
    row = _ROUTES.row_at(head["REQUEST_METHOD"], head["PATH_INFO"])
    return 0 if row is None else row.limit


@entry
def _answer(source: LocalEngine, request: flask.Request) -> flask.Response:
    return _ROUTES.answer(source, request)
