"""`leasehold dev`: the whole bundle on one machine.

The real functions under the real framework's server, with stand-ins for Cloud Tasks, Cloud
Scheduler and, where the catalog has channels, Pub/Sub. Nothing is kept but the store: at start the
queue is rebuilt from the manifests.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

import pydantic_core

from leasehold.bootstrap import Bundle, boot, load_catalog
from leasehold.devserver.cloud_tasks import CloudTasksDouble, HttpTask, QueueSettings, RetryConfig
from leasehold.devserver.cloud_tasks.task import UNLIMITED
from leasehold.devserver.events import EventsDouble
from leasehold.devserver.function_processes import (
    START_TIMEOUT_S,
    Function,
    FunctionProcesses,
    among,
    entry_folder,
    served_functions,
)
from leasehold.devserver.loopback_server import LoopbackServer, check_free
from leasehold.devserver.scheduler import TICK_S, Scheduler
from leasehold.devserver.server_process import DRAIN_S
from leasehold.domain.printable import counted
from leasehold.domain.retry import QUEUE_BACKOFF
from leasehold.domain.worker_note import WorkerKind
from leasehold.errors import SettingError, UnknownRunError
from leasehold.frozen import dataclass
from leasehold.registry.dispatch import check_platform
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, FunctionTable, Trigger
from leasehold.registry.settings import read_settings
from leasehold.services.adopt_runs import adopt_all, expire_if_gone, take_up_dispatched
from leasehold.services.check_chain import check_chains
from leasehold.services.due_deliveries import EPOCH, take_up_deliveries
from leasehold.services.engine import Engine
from leasehold.services.read_runs import get_run
from leasehold.services.worker_notes import Presence, other_projects
from leasehold.worker.handler.checks import ImportedHandlerChecks
from leasehold.worker.stopping.holder import host_name, is_gone

# Detects at once that a worker died: its connections drop, and the process of its lease is gone.
#
# Without it the step would wait until its lease expires.


#: The kernel closes the connections of a process shortly before the process is gone, so it is
#: looked at again after each of these waits. A process that is there after all of them is alive.
_GONE_WAITS_S: Final = (0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.4)


class CrashDetector:
    """Ends the leases of workers that died.

    Args:
        engine: the parts.
        is_gone: whether the process of a holder is known to be gone.
        kill_orphans: kills the orphans of the dead worker of this name; called before its lease is
            ended, so that the next attempt does not run beside them.
        report: called with a line for people on what was done, and what could not be.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        is_gone: Callable[[str], bool],
        kill_orphans: Callable[[str], object],
        report: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._is_gone = is_gone
        self._kill_orphans = kill_orphans
        self._report = report
        self._stopping = threading.Event()
        self._checks: set[threading.Thread] = set()

    def on_dropped(self, task: HttpTask) -> None:
        """Check the worker of a task whose connection dropped; returns at once."""
        run_id = _run_id_of(task)
        if run_id is None or self._stopping.is_set():
            return
        check = threading.Thread(target=self._check, args=(run_id,), name="crash", daemon=True)
        self._checks.add(check)
        try:
            check.start()
        except RuntimeError:  # no thread: then its lease expires, and the sweep comes
            self._checks.discard(check)

    def stop(self) -> None:
        """Check no more; the leases of workers that die from now on end at the next start."""
        self._stopping.set()
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until all checks are over."""
        for check in list(self._checks):
            check.join()

    def _check(self, run_id: str) -> None:
        try:
            if any(self._end_lease_if_gone(run_id, wait) for wait in _GONE_WAITS_S):
                self._report(f"the worker of run {run_id} died; its lease is ended")
        except UnknownRunError:
            return  # the task is not of this engine
        except Exception as error:  # noqa: BLE001 - then its lease expires, and the sweep comes
            self._report(f"the worker of run {run_id} may have died: {error}")
        finally:
            self._checks.discard(threading.current_thread())

    def _end_lease_if_gone(self, run_id: str, wait: float) -> bool:
        """Look once after a wait; return whether the worker is gone, and its lease ended."""
        if self._stopping.wait(wait):
            return False
        lease = get_run(self._engine, run_id).position.lease
        if lease is None or not self._is_gone(lease.holder):
            return False
        self._kill_orphans(lease.holder)
        return expire_if_gone(self._engine, run_id, is_gone=self._is_gone)


def _run_id_of(task: HttpTask) -> str | None:
    """Return the run that a task is for; None: it is not a task of an engine."""
    try:
        run_id = pydantic_core.from_json(task.body)["runId"]
    except (ValueError, KeyError, TypeError):
        return None
    return run_id if isinstance(run_id, str) else None


#: The settings of its queues, which docs/provisioning.md has beside those of a deployed queue.
QUEUES: Final = QueueSettings(
    RetryConfig(
        max_attempts=UNLIMITED,
        min_backoff=QUEUE_BACKOFF.minimum,
        max_backoff=QUEUE_BACKOFF.maximum,
        max_doublings=QUEUE_BACKOFF.doublings,
    )
)

#: What the addresses that it tells at the start are called, where it is not the function's name.
_WORDS: Final = {"manage_lease": "leases"}

#: How often the files of the project are looked at.
_FILES_POLL_S: Final = 0.5

CHANGED: Final = (
    "the code on disk changed since this server started, and every attempt here still runs the "
    "code of the start; restart it, or start it with --reload"
)

#: So long messages that are due are still delivered when it stops; later ones stay due.
ANNOUNCE_TIMEOUT_S: Final = 2.0

#: How long the start waits for the worker note, which others read.
_NOTE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class DevOptions:
    """The options of the dev server.

    Args:
        port: of the runs API; the other servers get free ports.
        workers: server processes of execute_step.
        data: where store and artifacts lie, unless the environment says otherwise.
        environ: the settings.
        tick_s: seconds between two ticks of the Scheduler.
        lease_port: of the API of leases, which is served where the catalog has remote steps; None:
            a free one.
        targets: hosts beyond this machine that tasks may be delivered to.
        reload: replace the functions' processes when the code on disk changes.
    """

    port: int = 8080
    workers: int = 2
    data: Path = Path(".leasehold")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    tick_s: float = TICK_S
    lease_port: int | None = None
    targets: tuple[str, ...] = ()
    reload: bool = False


class DevServer:
    """The bundle, from `start` until `stop`.

    Args:
        options: what it is served with.
        report: called with a line for people on what happens.
        tasks: in place of a stand-in for Cloud Tasks with the usual limits.
        table: the functions of the bundle.
        until_ready: answers on the port of the runs API until everything has started; None: nothing
            does.

    Attributes:
        url: of the runs API.
        leases_url: of the API of leases; None: it is not served, because no step is remote.
        tasks_url: of the stand-in for Cloud Tasks; empty until it is started.
        events: the stand-in for Pub/Sub; None: there is none, because the catalog has no channel.
        crash_detector: gets the connections that drop; None until it is started.

    Raises:
        SettingError, CatalogError, ChainError, and the errors of the registries: nothing was
            started.
    """

    def __init__(
        self,
        options: DevOptions,
        report: Callable[[str], None],
        *,
        tasks: CloudTasksDouble | None = None,
        table: FunctionTable = FUNCTIONS,
        until_ready: LoopbackServer | None = None,
    ) -> None:
        self._report, self._table, self._until_ready = report, table, until_ready
        catalog = load_catalog(read_settings(options.environ)["LEASEHOLD_CATALOG"])
        check_platform(catalog.steps)  # it plays the platform
        with contextlib.redirect_stdout(sys.stderr):  # what handlers print is no answer
            check_chains(catalog, ImportedHandlerChecks())
        self._functions = served_functions(
            table,
            catalog,
            ports={"serve_api": options.port, "manage_lease": options.lease_port},
            workers=options.workers,
        )
        at = {function.name: function.url for function in self._functions}
        self.url = at["serve_api"]
        self.leases_url = at.get("manage_lease")
        self.tasks_url = ""
        self.tasks = tasks or CloudTasksDouble(QUEUES, targets=options.targets)
        self._executing = among(self._functions, [table.of_tasks])
        self._announcing = among(self._functions, table.called_by(Trigger.EVENTS))
        pushed = {table[function.name].service: function.url for function in self._announcing}
        self.events = EventsDouble(pushed) if pushed else None
        self.crash_detector: CrashDetector | None = None
        self._folders = {name: entry_folder(name) for name in at}
        self._environ = function_environ(options, at[table.of_tasks.name])
        self._processes: list[FunctionProcesses] = []
        scheduled = table.called_by(Trigger.SCHEDULE)
        self._schedulers = [self._scheduler(it, at[it.name], options) for it in scheduled]
        self._bundle: Bundle | None = None
        self._reloads, self._stopping = options.reload, threading.Event()
        self._watch = threading.Thread(target=self._watch_code, name="code-watch", daemon=True)
        self._presence = Presence(WorkerKind.DEV)
        self._check_ports(options)

    def start(self) -> None:
        """Start everything, and adopt the runs that are in the store.

        Raises:
            StoreUnavailableError: a part does not start.
            SettingError: the store cannot be used.
        """
        self._environ["CLOUD_TASKS_EMULATOR_URL"] = self.tasks_url = self.tasks.start()
        if self.events is not None:
            self._environ["LEASEHOLD_EVENTS"] = self.events.start()
        self._bundle = bundle = boot(self._environ)
        self._dispatched_since = bundle.engine.clock.now()
        for function in self._functions:
            self._processes.append(self._processes_of(function))
            self._processes[-1].start()
        self.crash_detector = CrashDetector(
            bundle.engine, is_gone=_is_gone, kill_orphans=self._kill_orphans, report=self._report
        )
        self.tasks.on_dropped(self.crash_detector.on_dropped)
        deadline = time.monotonic() + START_TIMEOUT_S
        for processes in self._processes:
            processes.wait_until_ready(deadline)
        self._adopt(bundle)
        self._presence.note(bundle.engine, patience_s=_NOTE_TIMEOUT_S)
        for line in other_projects(bundle.engine):
            self._report(line)
        for scheduler in self._schedulers:
            scheduler.start()
        self._watch.start()
        for function in among(self._functions, self._table.called_by_users()):
            if function.url != self.url:  # which the caller tells
                self._report(f"{_WORDS.get(function.name, function.name)} {function.url}")
        for processes in self._processes:
            processes.take_over(deadline)

    def stop(self, at_once: Callable[[], bool] = lambda: False) -> None:
        """Let what runs end, then end everything; no process of it is left.

        Attempts that end release their leases and create the next tasks, so the queue accepts tasks
        until the last server ended; it delivers none of them. Their announcements are still
        delivered.

        Args:
            at_once: whether to kill what still runs; called again and again.
        """
        self._stopping.set()
        for scheduler in self._schedulers:
            scheduler.stop()
        self.tasks.stop_deliveries()
        if self.crash_detector is not None:
            self.crash_detector.stop()
        last = [it for it in self._processes if it.function in self._announcing]
        _end([it for it in self._processes if it not in last], at_once)
        if self.events is not None:
            self.events.drain(ANNOUNCE_TIMEOUT_S, at_once)
        _end(last, at_once)
        self.tasks.stop()
        if self.events is not None:
            self.events.stop()
        if self._bundle is not None:
            self._presence.end(self._bundle.engine)
            self._bundle.close()

    def _watch_code(self) -> None:
        """Say that the code on disk changed; with reload, have all functions begin with it."""
        assert self._bundle is not None  # noqa: S101 - it is started
        sources = self._bundle.sources
        while not self._stopping.wait(_FILES_POLL_S):
            if not sources.has_changed():
                continue
            if not self._reloads:
                self._report(CHANGED)
                return
            self._report("the code on disk changed: the functions begin with it")
            sources = sources.read_again()
            for line in sources.unreadable():
                self._report(line)
            for processes in self._processes:
                processes.restart()

    def _check_ports(self, options: DevOptions) -> None:
        """Raise SettingError where the two ports that can be named cannot be had."""
        if self.leases_url and options.lease_port == options.port:
            raise SettingError(name="--lease-port", value=options.port, allowed="its own port")
        if self._until_ready is None:
            check_free(options.port, "--port")
        if self.leases_url and options.lease_port:
            check_free(options.lease_port, "--lease-port")

    def _processes_of(self, function: Function) -> FunctionProcesses:
        until_then = self._until_ready if function.url == self.url else None
        folder = self._folders[function.name]
        return FunctionProcesses(function, folder, self._environ, self._report, until_then)

    def _scheduler(self, entry: FunctionEntry, url: str, options: DevOptions) -> Scheduler:
        """Return what calls a scheduled function; the sweep, more often than in the cloud."""
        if entry.name != "sweep_dead_letters":
            return Scheduler(entry, url, self._report)
        before = self._take_up_dispatched
        return Scheduler(entry, url, self._report, every=options.tick_s, before=before)

    def _kill_orphans(self, holder: str) -> None:
        """Kill the orphans of a dead worker; only what tasks call runs handlers."""
        for processes in self._processes:
            if processes.function in self._executing:
                processes.kill_orphans(holder)

    def _adopt(self, bundle: Bundle) -> None:
        adopted = adopt_all(bundle.engine, is_gone=_is_gone)
        self._owed_since = take_up_deliveries(bundle.engine, since=EPOCH)
        if adopted:
            self._report(f"resuming {counted(len(adopted), 'live run')} of the store")

    def _take_up_dispatched(self) -> None:
        """Do what is owed of runs that a command moved on the store, which has no queue."""
        if self._bundle is not None:
            engine = self._bundle.engine
            self._presence.note(engine)
            self._dispatched_since = take_up_dispatched(engine, since=self._dispatched_since)
            self._owed_since = take_up_deliveries(engine, since=self._owed_since)


def _end(servers: Sequence[FunctionProcesses], at_once: Callable[[], bool]) -> None:
    """Let servers finish what they do, all at the same time, and kill what does not end."""
    deadline = time.monotonic() + DRAIN_S
    for processes in servers:
        processes.request_stop()
    for processes in servers:
        processes.wait_or_kill(deadline, at_once)


def _is_gone(holder: str) -> bool:
    return is_gone(holder, host=host_name())


def function_environ(options: DevOptions, function_url: str) -> dict[str, str]:
    """Return the environment of the functions: that of the server, with its doubles."""
    data = options.data.absolute()
    defaults = {
        "LEASEHOLD_STORE": f"sqlite:///{data / 'leasehold.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{data / 'artifacts'}",
        "LEASEHOLD_ARTIFACTS_SHARED": "yes",  # by its processes, all of which are here
        "LEASEHOLD_PUBLIC_URL": Function("serve_api", options.port).url,
    }
    doubles = {
        "LEASEHOLD_TASKS": "cloud-tasks://local/local",
        "LEASEHOLD_FUNCTION_URL": function_url,
        "LEASEHOLD_TASK_ACCOUNT": "",
        "LEASEHOLD_EVENTS": "in-process",
        "LEASEHOLD_CATALOG": options.environ.get("LEASEHOLD_CATALOG", "pipelines.catalog"),
    }
    return {**defaults, **options.environ, **doubles}
