"""The functions of a bundle, deployed on this machine with emulators for Google's services."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from leasehold.cli.deploy.cloudbuild import BUILD_ENVIRONMENT
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.google_clients.clients import ONE_TRY
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry
from tests.worlds.clean_environment import ROOT, CleanEnvironment, install_requirements
from tests.worlds.emulators import firestore_host, pubsub_host, storage_bucket
from tests.worlds.ports import own_port

#: Files of an image have this time, whatever they had when they were compiled.
TIME_IN_IMAGE = 315532801

#: The program `functions-framework`; as for any program, its working folder is not on its path.
SERVER = ("-P", "-m", "functions_framework")

#: Calls functions as that program has them, in one process: a server of each takes two.
CALLER = """
import functions_framework, json, sys
for name, path, body in json.loads(sys.argv[1]):
    app = functions_framework.create_app(name, "main.py")
    print(json.dumps(app.test_client().post(path, json=body).json))
"""


@dataclass(frozen=True)
class Image:
    """A bundle with what its requirements.txt installs, and nothing else."""

    folder: Path

    @property
    def bundle(self) -> Path:
        return self.folder / "bundle"

    @property
    def environment(self) -> CleanEnvironment:
        return CleanEnvironment(self.folder / "environment")

    def _documented(self) -> str:
        """Return the first commands of the page, for another folder and this Python."""
        page = (ROOT / "docs" / "bundle.md").read_text()
        commands = page.partition("```sh\n")[2].partition("```")[0]
        make = f"{sys.executable} -m leasehold deploy bundle --out build/bundle"
        commands = commands.replace(".venv/bin/leasehold deploy bundle", make)
        return commands.replace("build/bundle", shlex.quote(str(self.bundle)))

    def build(self) -> None:
        """Make a bundle of this repository, and do with it what the build of a function does."""
        done = subprocess.run(
            ["/bin/sh", "-ec", self._documented()],
            cwd=ROOT,
            env={"PATH": os.defpath, "REVIEW_CHANNELS": "slack"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{self.bundle}: "), done.stdout
        install_requirements(self.bundle / "requirements.txt", self.environment.folder)
        command = ("python", "-m", "compileall", "-f", "-q", ".")
        done = self.environment.run(*command, cwd=self.bundle, **BUILD_ENVIRONMENT)
        assert done.returncode == 0, done.stdout + done.stderr
        for path in self.bundle.rglob("*"):
            os.utime(path, (TIME_IN_IMAGE, TIME_IN_IMAGE))


@dataclass
class Deployed:
    """The processes of the functions; where each is called, and what it wrote."""

    image: Image
    logs: Path
    settings: dict[str, str]
    project: str
    ports: dict[str, int] = field(
        default_factory=lambda: {name: own_port() for name in FUNCTIONS.keys()}  # noqa: SIM118 - a registry
    )
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def log(self, name: str) -> str:
        return (self.logs / name).read_text()

    def answer(self, name: str, path: str, body: Any = None) -> dict[str, Any]:
        """Call a function; return what it answers, or nothing: it does not listen yet."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url(name)}{path}", data, headers)  # noqa: S310 - our own server
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                return dict(json.load(error))
        except OSError:
            return {}

    def called(self, *calls: tuple[str, str, Any]) -> list[dict[str, Any]]:
        """Return the answers of functions that no server was started for, in order.

        Args:
            calls: of each its function, a path and a body.
        """
        words = ("python", "-P", "-c", CALLER, json.dumps(calls))
        done = self.image.environment.run(*words, cwd=self.image.bundle, **self.settings)
        assert done.returncode == 0, done.stderr
        (self.logs / "called").write_text(done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def published(self) -> list[dict[str, Any]]:
        """Return what Eventarc's subscription would push of the messages that were published."""
        asked = {"subscription": _subscription(self.project), "max_messages": 10}
        with _subscriber() as client:
            received = client.pull(asked, retry=None, timeout=5.0).received_messages
        return [
            {
                "message": {
                    "data": base64.b64encode(one.message.data).decode(),
                    "attributes": dict(one.message.attributes),
                    "messageId": one.message.message_id,
                },
                "subscription": _subscription(self.project),
            }
            for one in received
        ]

    def boot(self, names: Iterable[str]) -> None:
        """Start these functions."""
        for name in names:
            self.start(FUNCTIONS[name])

    def start(self, function: FunctionEntry) -> None:
        """Start one function, with the command of its image."""
        environ = {
            "FUNCTION_TARGET": function.name,
            "HOST": "127.0.0.1",
            "PORT": str(self.ports[function.name]),
            "THREADS": str(function.concurrency),
        }
        with (self.logs / function.name).open("w") as log:
            process = subprocess.Popen(
                [self.image.environment.folder / "bin" / "python", *SERVER],
                cwd=self.image.bundle,
                env=self.image.environment.environ | self.settings | environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        self.processes[function.name] = process

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def deployed(
    image: Image, logs: Path, names: Collection[str], **further: str
) -> Iterator[Deployed]:
    """Boot functions of an image, with `further` variables, and stop them in the end."""
    project = f"p-{secrets.token_hex(8)}"
    with storage_bucket() as (storage, bucket), CloudTasksDouble() as tasks:
        settings = {
            "LEASEHOLD_STORE": f"firestore://{project}/(default)",
            "LEASEHOLD_TASKS": f"cloud-tasks://{project}/europe-west1",
            "LEASEHOLD_EVENTS": f"pubsub://{project}/runs",
            "LEASEHOLD_ARTIFACTS": f"gs://{bucket}/artifacts",
            "LEASEHOLD_TASK_ACCOUNT": f"leasehold-tasks@{project}.iam.gserviceaccount.com",
            "FIRESTORE_EMULATOR_HOST": firestore_host(),
            "PUBSUB_EMULATOR_HOST": pubsub_host(),
            "STORAGE_EMULATOR_HOST": storage,
            "CLOUD_TASKS_EMULATOR_URL": tasks.start(),
            **further,
        }
        functions = Deployed(image, logs, settings, project)
        pushed_to = functions.url("deliver_notification") if "deliver_notification" in names else ""
        settings["LEASEHOLD_FUNCTION_URL"] = functions.url("execute_step")
        try:
            with subscription(project, pushed_to):
                functions.boot(names)
                yield functions
        finally:
            tasks.stop_deliveries()
            functions.stop()


@contextlib.contextmanager
def subscription(project: str, url: str) -> Iterator[None]:
    """Have the emulator of Pub/Sub push what is published, as Eventarc's subscription does.

    Where there is no URL it keeps that until it is pulled.
    """
    topic: dict[str, Any] = {"name": f"projects/{project}/topics/runs"}
    with grpc.insecure_channel(pubsub_host()) as channel:
        PublisherClient(transport=PublisherGrpcTransport(channel=channel)).create_topic(
            topic, **ONE_TRY
        )
    name, push = _subscription(project), {"push_config": {"push_endpoint": url}} if url else {}
    with _subscriber() as client:
        client.create_subscription({"name": name, "topic": topic["name"], **push}, **ONE_TRY)
        yield
        client.delete_subscription({"subscription": name}, **ONE_TRY)


@contextlib.contextmanager
def _subscriber() -> Iterator[SubscriberClient]:
    with grpc.insecure_channel(pubsub_host()) as channel:
        yield SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))


def _subscription(project: str) -> str:
    return f"projects/{project}/subscriptions/eventarc-runs"
