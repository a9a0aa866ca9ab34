"""All of Google Cloud that an installation needs, on this machine, and the commands against it."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leasehold.cli.commands import program
from leasehold.cli.exit_codes import DONE, exit_code_of
from leasehold.deploy.installation import Installation
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.devserver.cloud_tasks.request import ApiError
from leasehold.google_clients.clients import EMULATOR, GoogleClients
from tests.deploy.google_server import GoogleServer
from tests.deploy.google_services.world import World
from tests.deploy.storage_api import StorageApi
from tests.worlds.emulators import pubsub_host

REGION = "europe-west1"
_NUMBERS = itertools.count(1)


@dataclass
class TasksRecorder:
    """The requests to the double of Cloud Tasks, and those that it refuses.

    Attributes:
        calls: method and path of each request.
        refusal: returns the error for a request, or None.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)
    refusal: Callable[[str, str], ApiError | None] = lambda *_: None

    def __call__(self, method: str, path: str) -> None:
        self.calls.append((method, path))
        if error := self.refusal(method, path):
            raise error

    def writes(self) -> list[str]:
        reads = ("GET",)
        return [
            f"{method} {path}"
            for method, path in self.calls
            if method not in reads and not path.endswith(":getIamPolicy")
        ]


def deploy(words: Sequence[str]) -> int:
    """Call `leasehold deploy WORDS` in this process; return its exit code."""
    return leasehold(["deploy", *words])


def leasehold(words: Sequence[str]) -> int:
    """Call `leasehold WORDS` in this process; return its exit code."""

    def call() -> int:
        with program.make_context("leasehold", [*words]) as context:
            code: int | None = program.invoke(context)
        return code or DONE

    return exit_code_of(call, as_json="--json" in words)


@dataclass
class Done:
    """What a command did."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def states(self, *kinds: str) -> dict[str, str]:
        """Return the state of each resource of these kinds, by kind and name, from JSON."""
        return {
            f"{row['kind']} {row['name']}": row["action"]
            if row["action"] != "none"
            else row["state"]
            for row in self.json["resources"]
            if row["kind"] in kinds
        }


@dataclass
class Cloud:
    """One project in all of it; each test has its own.

    Args:
        server: Google's gRPC APIs.
        tasks: what Cloud Tasks recorded.
        storage: the buckets.
        environ: where all of it is.
    """

    server: GoogleServer
    tasks: TasksRecorder
    storage: StorageApi
    environ: dict[str, str]

    def __post_init__(self) -> None:
        self.project = f"shop-prod-{next(_NUMBERS)}-{os.getpid()}"
        self.server.world.project = self.project
        self.forget()

    def forget(self) -> None:
        """Forget the calls and what is refused; what exists stays."""
        self.server.forget()
        self.tasks.calls.clear()
        self.storage.writes.clear()
        self.tasks.refusal = lambda *_: None

    @property
    def clients(self) -> GoogleClients:
        return GoogleClients(self.project, self.environ)

    @property
    def installation(self) -> Installation:
        number = self.server.world.number
        return Installation(self.project, number, REGION, catalog="tests.deploy.catalog")

    def writes(self) -> list[str]:
        """Return all calls that change something, of any service."""
        return [*self.server.writes(), *self.tasks.writes(), *self.storage.writes]

    def provision(self, *words: str, **settings: str) -> Done:
        """Call the command in this process, for this project."""
        given = self._settings()
        stdout, stderr = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (given | settings).items():
                patch.setenv(name, value)
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                code = deploy(words)
        return Done(code, stdout.getvalue(), stderr.getvalue())

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start the command as its own process."""
        return subprocess.Popen(
            [sys.executable, "-m", "leasehold", "deploy", *words],
            cwd=Path(__file__).parents[2],
            env=os.environ | self._settings(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _settings(self) -> dict[str, str]:
        return self.environ | {
            "GOOGLE_CLOUD_PROJECT": self.project,
            "LEASEHOLD_REGION": REGION,
            "LEASEHOLD_CATALOG": "tests.deploy.catalog",
        }


@contextlib.contextmanager
def cloud_servers() -> Iterator[Callable[[], Cloud]]:
    """Run all servers; lend what makes a project in them."""
    tasks = TasksRecorder()
    double = CloudTasksDouble(strict=True, on_request=tasks)
    storage = StorageApi(World().number)
    with storage.serve() as address, GoogleServer(pubsub=pubsub_host()) as server, double:
        environ = {
            EMULATOR: server.address,
            "CLOUD_TASKS_EMULATOR_URL": double.start(),
            "STORAGE_EMULATOR_HOST": address,
        }
        yield lambda: Cloud(server, tasks, storage, environ)
