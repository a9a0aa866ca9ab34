"""The engine of a function: checked when the function is imported, opened when it is called.

gunicorn imports the function before it forks its workers; a connection or a thread made then
would be shared by all of them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from leasehold.api.call_row import Answer, CallRequest, CallRow, Given
from leasehold.bootstrap import TELEMETRY_FLUSH_S, Bundle, Hooks, boot, check_home, load_catalog
from leasehold.domain.worker_note import WorkerKind
from leasehold.logs.stderr_log import log_as_json
from leasehold.ports.telemetry import NO_TELEMETRY
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import check_functions, read_settings
from leasehold.services.engine import Engine
from leasehold.services.shut_down import shut_down
from leasehold.services.worker_notes import Presence
from leasehold.web.callers import CallerCheck
from leasehold.web.entry import check_every_request
from leasehold.worker.sandbox.forking.project_sources import ProjectSources
from leasehold.worker.stopping.holder import HOLDER
from leasehold.worker.stopping.system_signals import ENDING, ShutdownCoordinator

_LOG: Final = logging.getLogger("leasehold.engine")
#: So long an answer waits for its telemetry to be sent, and only while a receiver is there.
_TELEMETRY_FLUSH_S: Final = 1.0

#: Of this process; it listens for signals from the import of a function on.
SHUTDOWN: Final = ShutdownCoordinator()


def _goes_on() -> bool:
    """Return whether an attempt may be followed by that of the next step in the same request."""
    return not SHUTDOWN.shutdown_requested


def _end(engine: Engine) -> None:
    """End what this process works on at SIGTERM; its telemetry has what is left of ten seconds."""
    shut_down(engine, signal_name="SIGTERM")
    engine.telemetry.flush(TELEMETRY_FLUSH_S)


@dataclass(slots=True)
class EngineProvider:
    """Opens the bundle of the environment once a process.

    Attributes:
        has_looked: whether this process has looked at the runs that wait for other code.

    Raises:
        SettingError, CatalogError, and the errors of the registries: the revision does not start.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    catalog: Catalog = field(init=False)
    callers: CallerCheck = field(init=False)
    sources: ProjectSources = field(init=False, repr=False)
    has_looked: bool = False
    _bundle: Bundle | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _forget: Callable[[], None] = field(default=lambda: None)
    _presence: Presence = field(default_factory=lambda: Presence(WorkerKind.FUNCTION))

    def __post_init__(self) -> None:
        log_as_json()
        SHUTDOWN.listen(*ENDING)
        settings = read_settings(self.environ)
        check_functions(settings, self.environ)
        self.callers = CallerCheck.of(settings, self.environ)
        check_every_request(self)
        name = settings["LEASEHOLD_CATALOG"]
        self.catalog = load_catalog(name)
        check_home(settings, self.catalog)
        self.sources = ProjectSources.of(self.catalog, name)
        for line in self.sources.missing():
            _LOG.error("%s", line)

    @property
    def engine(self) -> Engine:
        """The engine; the stores are opened at the first use in this process."""
        with self._lock:
            is_new = self._bundle is None
            if self._bundle is None:
                hooks = Hooks(may_continue=_goes_on, in_request=True)
                self._bundle = boot(
                    self.environ, catalog=self.catalog, sources=self.sources, hooks=hooks
                )
                os.environ[HOLDER] = self._bundle.engine.process.holder  # for what handlers start
                self._forget = SHUTDOWN.on_stop(partial(_end, self._bundle.engine))
            if is_new or not SHUTDOWN.is_watching:
                SHUTDOWN.watch()
            return self._bundle.engine

    def answer(self, row: CallRow[Given, Answer], request: CallRequest[Given]) -> Answer:
        """Answer a request with the engine."""
        return row.answer(self.engine, request)

    def end_call(self) -> None:
        """Send the telemetry of a call: without another one, this process gets no CPU after it."""
        if self._bundle is not None and self._bundle.engine.telemetry is not NO_TELEMETRY:
            self._bundle.engine.telemetry.flush(_TELEMETRY_FLUSH_S)

    def note_presence(self) -> None:
        """Note that this process works, in the background; once a minute at most.

        That it ends is not noted: a process that is to end has its leases to release.
        """
        self._presence.note(self.engine)

    def close(self) -> None:
        """Close the stores, for tests; a function ends with its process."""
        self._forget()
        if self._bundle is not None:
            self._bundle.close()
