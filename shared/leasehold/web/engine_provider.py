"""The engine of a function: checked when the function is imported, opened when it is called.

gunicorn imports the function before it forks its workers; a connection or a thread made then
would be shared by all of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from leasehold.bootstrap import Bundle, boot, load_catalog
from leasehold.domain.change import Change
from leasehold.logs.for_cloud import log_as_json
from leasehold.registry.half_set import check_functions
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import read_settings
from leasehold.services.engine import Engine
from leasehold.services.shut_down import shut_down
from leasehold.services.start_run import StartRequest, start_run
from leasehold.web.callers import CallerCheck, check_every_request
from leasehold.worker.holder import HOLDER
from leasehold.worker.shutdown import ENDING, ShutdownCoordinator

#: Of this process; it listens for signals from the import of a function on.
SHUTDOWN: Final = ShutdownCoordinator()


class EngineSource(Protocol):
    """Where an answer gets its engine: that of a function, or of a server that works itself."""

    @property
    def engine(self) -> Engine:
        """The engine; its stores may be opened by this."""
        ...

    @property
    def callers(self) -> CallerCheck | None:
        """Who may call; None: what stands before the answer has checked that."""
        ...

    def start_run(self, request: StartRequest) -> Change:
        """Start a run, as `services.start_run` has it."""
        ...


@dataclass(slots=True)
class EngineProvider:
    """Opens the bundle of the environment once a process.

    Raises:
        SettingError, CatalogError, and the errors of the registries: the revision does not start.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    catalog: Catalog = field(init=False)
    callers: CallerCheck = field(init=False)
    _bundle: Bundle | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _forget: Callable[[], None] = field(default=lambda: None)

    def __post_init__(self) -> None:
        log_as_json()
        SHUTDOWN.listen(*ENDING)
        settings = read_settings(self.environ)
        check_functions(settings, self.environ)
        self.callers = CallerCheck.of(settings, self.environ)
        check_every_request(self)
        self.catalog = load_catalog(settings["LEASEHOLD_CATALOG"])

    @property
    def engine(self) -> Engine:
        """The engine; the stores are opened at the first use in this process."""
        with self._lock:
            is_new = self._bundle is None
            if self._bundle is None:
                self._bundle = boot(self.environ, catalog=self.catalog)
                os.environ[HOLDER] = self._bundle.engine.holder  # for what handlers start
                end = partial(shut_down, self._bundle.engine, signal_name="SIGTERM")
                self._forget = SHUTDOWN.on_stop(end)
            if is_new or not SHUTDOWN.is_watching:
                SHUTDOWN.watch()
            return self._bundle.engine

    def start_run(self, request: StartRequest) -> Change:
        """Start a run; a worker gets it from the queue."""
        return start_run(self.engine, request)

    def close(self) -> None:
        """Close the stores, for tests; a function ends with its process."""
        self._forget()
        if self._bundle is not None:
            self._bundle.close()
