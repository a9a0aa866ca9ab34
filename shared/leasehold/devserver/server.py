"""`leasehold dev`: the whole bundle on one machine.

The real functions under the real framework's server; Cloud Tasks and Cloud Scheduler are played.
Nothing is kept but the store: at start the queue is rebuilt from the manifests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from leasehold.bootstrap import Bundle, boot, load_catalog
from leasehold.devserver.children import (
    START_S,
    Child,
    Function,
    check_free,
    entry_folder,
    free_port,
)
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.devserver.scheduler import TICK_S, Scheduler
from leasehold.registry.settings import read_settings
from leasehold.services.adopt_runs import adopt_all
from leasehold.worker.holder import host_name, is_gone

#: How long running attempts may take to end when the server is told to stop.
DRAIN_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class DevOptions:
    """What the bundle is served with.

    Args:
        port: of the runs API; the other servers get free ports.
        workers: server processes of execute_step.
        data: where store and artifacts lie, unless the environment says otherwise.
        environ: the settings.
        tick_s: seconds between two ticks of the Scheduler.
    """

    port: int = 8080
    workers: int = 2
    data: Path = Path(".leasehold")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    tick_s: float = TICK_S


class DevServer:
    """The bundle, from `start` until `stop`.

    Args:
        options: what it is served with.
        tell: told in a line what happens.
        tasks: what plays Cloud Tasks, where its limits are not to be the usual ones.

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
        folder = entry_folder()
        check_free(options.port)
        load_catalog(read_settings(options.environ)["LEASEHOLD_CATALOG"])
        api = Function("serve_api", options.port)
        execute = Function("execute_step", free_port(), workers=options.workers)
        sweep = Function("sweep_dead_letters", free_port(), threads=2)
        self.url = api.url
        self.tasks_url = ""  # of what plays Cloud Tasks, once it is started
        self.tasks = tasks or CloudTasksDouble()
        self._environ = settings_of(options, execute.url)
        self._folder = folder
        self._functions = (execute, sweep, api)
        self._children: list[Child] = []
        self._scheduler = Scheduler(sweep.url, tell, options.tick_s)
        self._bundle: Bundle | None = None

    def start(self) -> None:
        """Start everything, and take up the runs that are in the store.

        Raises:
            StoreUnavailableError: a part does not come up.
            SettingError: the store cannot be used.
        """
        self._environ["CLOUD_TASKS_EMULATOR_URL"] = self.tasks_url = self.tasks.start()
        self._bundle = boot(self._environ)
        for function in self._functions:
            child = Child(function, self._folder, self._environ, self._tell)
            self._children.append(child)
            child.start()
        deadline = time.monotonic() + START_S
        for child in self._children:
            child.wait_until_ready(deadline)
        self._adopt(self._bundle)
        self._scheduler.start()

    def stop(self) -> None:
        """Let what runs end, then end everything; nothing of it is left behind."""
        self._scheduler.stop()
        deadline = time.monotonic() + DRAIN_S
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.kill_at(deadline)
        self.tasks.stop()
        if self._bundle is not None:
            self._bundle.close()

    def _adopt(self, bundle: Bundle) -> None:
        adopted = adopt_all(bundle.engine, is_gone=partial(is_gone, host=host_name()))
        if adopted:
            self._tell(f"{len(adopted)} live runs of the store are taken up")


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
