"""The application: the runs API and the API of leases at one address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import flask

from leasehold.domain.change import Change
from leasehold.in_process import InProcessEngine
from leasehold.services.engine import Engine
from leasehold.services.start_run import StartRequest
from leasehold.web import manage_lease, serve_api
from leasehold.web.loopback_guard import LoopbackGuard, refusal_of
from leasehold.web.manage_lease import answer_lease
from leasehold.web.responses import refuse_path
from leasehold.web.serve_api import answer_api

_LEASES: Final = "/leases:"
_PATHS: Final = (*serve_api.PATHS, *manage_lease.PATHS)


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The engine of the workers of this process, for the answers as well.

    So a run that is started gets an idle worker in the same commit, what an operation dispatches
    is in the workers' own queue, and a handler whose run is cancelled hears of it.
    """

    local: InProcessEngine
    callers: None = None  # nobody signs in; the guard before it keeps pages of strangers off

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.local.engine

    @property
    def looks_after_runs(self) -> bool:
        """Whether the clockwork has looked lately."""
        return self.local.looks_after_runs

    def start_run(self, request: StartRequest) -> Change:
        """Start a run; an idle worker has its lease when this returns."""
        return self.local.start_run(request)


def make_app(local: InProcessEngine, hosts: Sequence[str] | None) -> LoopbackGuard:
    """Return the application, behind what strangers' web pages cannot pass.

    Args:
        local: the engine.
        hosts: by which it may be called; see `LoopbackGuard`.
    """
    source = LocalEngine(local)

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = flask.Request(environ)
        path = request.path
        response = (answer_lease if path.startswith(_LEASES) else answer_api)(source, request)
        if response.status_code == HTTPStatus.NOT_FOUND and not _is_served(path):
            response = refuse_path(path, _PATHS)  # each of the two knows its own paths only
        answered: Iterable[bytes] = response(environ, start_response)
        return answered

    return LoopbackGuard(answer, hosts)


def body_limit(head: Mapping[str, str], hosts: Sequence[str] | None) -> int:
    """Return how many bytes the body of a request may have; 0: it is refused, whatever it has.

    Args:
        head: the request without its body, as WSGI has it.
        hosts: by which it may be called.
    """
    if refusal_of(dict(head), hosts) is not None:
        return 0
    method, path = head["REQUEST_METHOD"], head["PATH_INFO"]
    if path.startswith(_LEASES):
        return manage_lease.body_limit(path)
    return serve_api.body_limit(method, path)


def _is_served(path: str) -> bool:
    return path in manage_lease.PATHS or serve_api.is_path(path)
