"""`leasehold dev`: the whole bundle on one machine.

The real functions under the real framework's server; Cloud Tasks and Cloud Scheduler are played.
Nothing is kept but the store: at start the queue is rebuilt from the manifests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leasehold.bootstrap import Bundle, boot, load_catalog
from leasehold.devserver.cloud_tasks import CloudTasksDouble, QueueSettings, RetryConfig
from leasehold.devserver.cloud_tasks.limits import UNLIMITED
from leasehold.devserver.crash_detector import CrashDetector
from leasehold.devserver.function_processes import (
    START_S,
    Child,
    Function,
    check_free,
    entry_folder,
    free_port,
)
from leasehold.devserver.scheduler import TICK_S, Scheduler
from leasehold.devserver.server_process import DRAIN_S
from leasehold.domain.retry import QUEUE_BACKOFF
from leasehold.errors import SettingError
from leasehold.registry.dispatch import REMOTE
from leasehold.registry.pipelines import Catalog
from leasehold.registry.settings import read_settings
from leasehold.services.adopt_runs import adopt_all, take_up_dispatched
from leasehold.worker.holder import host_name, is_gone

#: The settings of its queues: those that docs/operations.md has a deployed queue get.
QUEUES: Final = QueueSettings(
    RetryConfig(
        max_attempts=UNLIMITED,
        min_backoff=QUEUE_BACKOFF.minimum,
        max_backoff=QUEUE_BACKOFF.maximum,
        max_doublings=QUEUE_BACKOFF.doublings,
    )
)

#: Requests at once: so many more than callers need that some which never come whole, and hold a
#: thread each until their time is over, keep nobody out.
API_THREADS: Final = 64


@dataclass(frozen=True, slots=True)
class DevOptions:
    """What the bundle is served with.

    Args:
        port: of the runs API; the other servers get free ports.
        workers: server processes of execute_step.
        data: where store and artifacts lie, unless the environment says otherwise.
        environ: the settings.
        tick_s: seconds between two ticks of the Scheduler.
        lease_port: of the API of leases, which is served where the catalog has steps for workers
            elsewhere; None: a free one.
        targets: hosts beyond this machine that tasks may be delivered to.
    """

    port: int = 8080
    workers: int = 2
    data: Path = Path(".leasehold")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    tick_s: float = TICK_S
    lease_port: int | None = None
    targets: tuple[str, ...] = ()


class DevServer:
    """The bundle, from `start` until `stop`.

    Args:
        options: what it is served with.
        tell: told in a line what happens.
        tasks: what plays Cloud Tasks, where its limits are not to be the usual ones.

    Attributes:
        url: of the runs API.
        leases_url: of the API of leases; None: it is not served, because no step needs it.
        dead_workers: what is told of connections that drop; None until it is started.

    Raises:
        SettingError, CatalogError, and the errors of the registries: nothing was started.
    """

    def __init__(
        self,
        options: DevOptions,
        tell: Callable[[str], None],
        *,
        tasks: CloudTasksDouble | None = None,
    ) -> None:
        self._tell = tell
        catalog = load_catalog(read_settings(options.environ)["LEASEHOLD_CATALOG"])
        self._execute = Function("execute_step", free_port(), workers=options.workers)
        sweep = Function("sweep_dead_letters", free_port(), threads=2)
        api = Function("serve_api", options.port, threads=API_THREADS)
        leases = _leases(catalog, options)
        self.url = api.url
        self.leases_url = leases.url if leases else None
        self.tasks_url = ""  # of what plays Cloud Tasks, once it is started
        self.tasks = tasks or CloudTasksDouble(QUEUES, targets=options.targets)
        self.dead_workers: CrashDetector | None = None  # until it is started
        self._functions = (self._execute, sweep, api, *([leases] if leases else []))
        self._folder = entry_folder(function.name for function in self._functions)
        self._environ = settings_of(options, self._execute.url)
        self._children: list[Child] = []
        self._scheduler = Scheduler(sweep.url, tell, options.tick_s, first=self._take_up_dispatched)
        self._bundle: Bundle | None = None
        check_free(api.port, "--port")
        if leases:
            check_free(leases.port, "--lease-port")

    def start(self) -> None:
        """Start everything, and take up the runs that are in the store.

        Raises:
            StoreUnavailableError: a part does not come up.
            SettingError: the store cannot be used.
        """
        self._environ["CLOUD_TASKS_EMULATOR_URL"] = self.tasks_url = self.tasks.start()
        self._bundle = bundle = boot(self._environ)
        self._dispatched_since = bundle.engine.clock.now()
        for function in self._functions:
            child = Child(function, self._folder, self._environ, self._tell)
            self._children.append(child)
            child.start()
        self.dead_workers = CrashDetector(
            bundle.engine, is_gone=_is_gone, clear=self._clear, tell=self._tell
        )
        self.tasks.on_dropped(self.dead_workers.notice)
        deadline = time.monotonic() + START_S
        for child in self._children:
            child.wait_until_ready(deadline)
        self._adopt(bundle)
        self._scheduler.start()
        if self.leases_url:
            self._tell(f"leases {self.leases_url}")

    def stop(self, at_once: Callable[[], bool] = lambda: False) -> None:
        """Let what runs end, then end everything; nothing of it is left behind.

        Attempts that end hand their leases back and create the tasks of what is next, so the
        queue takes tasks until the last server ended; it delivers none of them.

        Args:
            at_once: whether to kill what still runs; asked again and again.
        """
        self._scheduler.stop()
        self.tasks.deliver_no_more()
        if self.dead_workers is not None:
            self.dead_workers.stop()
        deadline = time.monotonic() + DRAIN_S
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.wait_or_kill(deadline, at_once)
        self.tasks.stop()
        if self._bundle is not None:
            self._bundle.close()

    def _clear(self, holder: str) -> None:
        """Kill what a dead worker left behind; only execute_step runs handlers."""
        for child in self._children:
            if child.function is self._execute:
                child.kill_left_behind(holder)

    def _adopt(self, bundle: Bundle) -> None:
        adopted = adopt_all(bundle.engine, is_gone=_is_gone)
        if adopted:
            runs = "run" if len(adopted) == 1 else "runs"
            self._tell(f"resuming {len(adopted)} live {runs} of the store")

    def _take_up_dispatched(self) -> None:
        """Create the tasks of runs that a command moved on the store, which has no queue."""
        if self._bundle is not None:
            self._dispatched_since = take_up_dispatched(
                self._bundle.engine, since=self._dispatched_since
            )


def _is_gone(holder: str) -> bool:
    return is_gone(holder, host=host_name())


def _leases(catalog: Catalog, options: DevOptions) -> Function | None:
    """Return the function that workers elsewhere take their leases from, if there are such."""
    if not any(step.handler == REMOTE for step in catalog.steps):
        return None
    if options.lease_port == options.port:
        raise SettingError(name="--lease-port", value=options.port, allowed="a port of its own")
    return Function("manage_lease", options.lease_port or free_port(), threads=API_THREADS)


def settings_of(options: DevOptions, function_url: str) -> dict[str, str]:
    """Return the environment of the functions: that of the server, with what it plays."""
    data = options.data.absolute()
    kept = {
        "LEASEHOLD_STORE": f"sqlite:///{data / 'leasehold.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{data / 'artifacts'}",
    }
    played = {
        "LEASEHOLD_TASKS": "cloud-tasks://local/local",
        "LEASEHOLD_FUNCTION_URL": function_url,
        "LEASEHOLD_TASK_ACCOUNT": "",
        "LEASEHOLD_CATALOG": options.environ.get("LEASEHOLD_CATALOG", "pipelines.catalog"),
    }
    return {**kept, **options.environ, **played}
