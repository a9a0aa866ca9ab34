"""One process that does it all: it answers, it runs steps, and it looks after every run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import flask

from leasehold.api import calls
from leasehold.api.call_row import Answer, AnyRow, CallRequest, CallRow, Created, Given, JsonText
from leasehold.api.registry import HealthResponse
from leasehold.api.runs import StartBody
from leasehold.domain.printable import counted
from leasehold.domain.summary import Summary
from leasehold.errors import NotReadyError, SettingError, StoreUnavailableError
from leasehold.frozen import dataclass
from leasehold.in_process import InProcessEngine
from leasehold.registry.settings import SETTINGS, read_settings
from leasehold.server.http_server import HttpServer
from leasehold.server.startup import begin_to_answer, hosts_of, url_of
from leasehold.services.engine import Engine
from leasehold.services.worker_notes import other_projects
from leasehold.web import manage_lease, serve_api
from leasehold.web.entry import entry
from leasehold.web.routes import Routes
from leasehold.web.sign_in import ServerCallers
from leasehold.worker.sandbox.forking.source_finder import install

# The application: the runs API and the API of leases at one address.


_ROUTES: Final = Routes((*serve_api.ROUTES.rows, *manage_lease.ROUTES.rows), has_pages=True)


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The engine of the workers of this process, for the answers as well.

    So a run that is started gets an idle worker in the same commit, what an operation dispatches
    is in the workers' own queue, and a handler whose run is cancelled hears of it.

    Args:
        local: the engine.
        callers: who may call; web pages of other origins are refused.
    """

    local: InProcessEngine
    callers: ServerCallers

    def answer(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        """Answer a request with the engine."""
        own: Mapping[AnyRow, Any] = {
            calls.start: self._start,
            calls.ready: self._ready,
            calls.openapi: self._openapi,
        }
        answered: Answer = own.get(row, row.answer)(self.local.engine, request)
        return answered

    def end_call(self) -> None:
        """Do nothing: this process goes on, and its telemetry is sent meanwhile."""

    def _start(self, _: Engine, request: CallRequest[StartBody]) -> Created[Summary]:
        """Start a run; an idle worker has its lease when this returns."""
        wanted = request.given.to_request(request.traceparent)
        return calls.started(self.local.start_run(wanted))

    def _ready(self, engine: Engine, request: CallRequest[None]) -> HealthResponse:
        """Say that it could work, if the timer has looked lately, too."""
        if not self.local.looks_after_runs:
            problem = "it still takes up the runs of the store, or its timer hangs"
            raise NotReadyError(problem=problem)
        return calls.ready.answer(engine, request)

    def _openapi(self, _engine: Engine, _: CallRequest[None]) -> JsonText:
        return calls.specified(_ROUTES.rows)


def make_app(
    local: InProcessEngine, callers: ServerCallers
) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Return the application, behind what strangers cannot pass.

    Args:
        local: the engine.
        callers: who may call.
    """
    source = LocalEngine(local, callers)

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        response = _answer(source, flask.Request(environ))
        answered: Iterable[bytes] = response(environ, start_response)
        return answered

    return answer


def _body_limit(callers: ServerCallers, head: Mapping[str, str]) -> int:
    """Return how many bytes the body of a request may have; 0: it is refused, whatever it has."""
    most = _ROUTES.body_limit(head["REQUEST_METHOD"], head["PATH_INFO"])
    return callers.body_limit(dict(head), most)


@entry
def _answer(source: LocalEngine, request: flask.Request) -> flask.Response:
    return source.callers.answer(request) or _ROUTES.answer(source, request)


#: How often runs are looked for that another process dispatched or left.
TICK_S: Final = 1.0
#: The same where each look is billed.
BILLED_TICK_S: Final = 10.0

#: A stop takes no longer, whatever the store and the callers do: service managers kill after 10 s.
_MAX_STOP_S: Final = 9.0
#: However long the workers took, what is answered by then gets out.
_MIN_ANSWERS_S: Final = 0.5

#: How often a store is asked again that is away at the start.
_STORE_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of a server.

    Args:
        host: the address to listen on.
        port: the port.
        workers: how many steps run at once.
        allow_broken: begin also where something of the catalog does not resolve; its steps block.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 4
    allow_broken: bool = False


class Server:
    """The server, from `start` until `stop`; several of them may share a store.

    Args:
        options: what it is served with.
        report: called with a line for people on what happens.
        environ: the settings; None: those of the process.
        http: what `begin_to_answer` returned, if it was called before; the server owns it from
            here on.

    Attributes:
        url: of the runs API and the API of leases.
        local: the engine of its workers and its answers.
        believes_header: whether others than programs of this machine can call it, and a header
            says who they are.

    Raises:
        SettingError, CatalogError, and the errors of the registries: nothing was started.
        RuntimeError: the system has no threads for it.
    """

    def __init__(
        self,
        options: ServeOptions,
        report: Callable[[str], object],
        environ: Mapping[str, str] | None = None,
        http: HttpServer | None = None,
    ) -> None:
        self._report = report
        settings = read_settings(os.environ if environ is None else environ)
        _check_queue(settings["LEASEHOLD_TASKS"])
        is_billed = not settings["LEASEHOLD_STORE"].startswith("sqlite:")
        self._tick_s = BILLED_TICK_S if is_billed else TICK_S
        with ExitStack() as undo:
            self._http = http or begin_to_answer(options.host, options.port, environ)
            undo.callback(self._http.stop)
            self.url = url_of(self._http.listener)
            self.local = undo.enter_context(
                InProcessEngine(
                    environ=environ,
                    workers=options.workers,
                    warn=report,
                    allow_broken=options.allow_broken,
                )
            )
            self._forget_sources = install(self.local.sources.files)
            undo.callback(self._forget_sources)
            hosts = hosts_of(self._http.listener)
            self.believes_header = hosts is None and bool(settings["LEASEHOLD_IDENTITY_HEADER"])
            self._callers = ServerCallers(hosts, settings)
            undo.pop_all()

    def start(self) -> None:
        """Answer and work from now on, and take up the runs that are in the store.

        A store that is away is waited for; the API says so meanwhile.
        """
        self.local.import_all()
        self.local.look_after_every_run(self._tick_s)
        limit = partial(_body_limit, self._callers)
        self._http.hand_over(make_app(self.local, self._callers), limit)
        if adopted := self._adopt():
            self._report(f"resuming {counted(adopted, 'live run')} of the store")
        for line in other_projects(self.local.engine):
            self._report(line)

    def stop(self, signal_name: str | None = None) -> None:
        """Let running attempts end, release the leases of the others, and answer until then."""
        end = time.monotonic() + _MAX_STOP_S
        self.local.drain(signal_name=signal_name)
        self._http.stop(max(_MIN_ANSWERS_S, end - time.monotonic()))
        self.local.close(grace=0)
        self._forget_sources()

    def _adopt(self) -> int:
        has_reported = False
        while True:
            try:
                return self.local.adopt_all()
            except StoreUnavailableError as error:
                if not has_reported:
                    self._report(
                        f"the store is asked again every {_STORE_RETRY_S:g} s: {error.message}"
                    )
                has_reported = True
            time.sleep(_STORE_RETRY_S)


def _check_queue(tasks: str) -> None:
    """Refuse a queue that would deliver the runs of this server to other workers as well."""
    if tasks != "in-process":
        default = SETTINGS["LEASEHOLD_TASKS"].default
        allowed = f"{default}, or unset: `leasehold serve` has its own queue"
        raise SettingError(name="LEASEHOLD_TASKS", value=tasks, allowed=allowed)
