"""A deployment on this machine: a build's steps and a page's commands, against local servers.

Real: the programs of infra/, the functions that `leasehold dev` serves, Google's APIs as the local
servers play them. Written down only: gcloud, and what prepares and runs the gate.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from leasehold.cli.deploy.smoke import EMULATOR
from leasehold.devserver.server import DevOptions, DevServer
from leasehold.google_clients.clients import ONE_TRY
from leasehold.registry.function_table import FUNCTIONS
from tests.deploy.build_machine import ROOT, BuildMachine, copy_source, leasehold_here
from tests.deploy.cloud import Cloud, cloud_servers
from tests.deploy.cloud_run import BY_TOKEN, TOKEN, cloud_run
from tests.deploy.google_services.firestore import FirestoreAdmin
from tests.deploy.google_services.monitoring import Alerts
from tests.deploy.google_services.run import CloudRun as Services
from tests.deploy.google_services.secrets import Secrets
from tests.deploy.recorder import RecordedCall, Recorder
from tests.worlds.bundles import INLINE, settings
from tests.worlds.emulators import firestore_host
from tests.worlds.ports import own_port

#: What is written down, in place of being done.
RECORDED = ("gcloud", "make", "apt-get", "cp")
#: The steps of a build that need no process: `tests/package/test_deployed_project.py` has one each.
IN_PROCESS = ("bundle", "live-runs", "apply", "smoke", "settings")
#: The commands of a page that need none either.
_HERE = re.compile(
    r"^\.venv/bin/leasehold (deploy (?:init|plan|apply|drift)|start .+|runs .+)\n", re.MULTILINE
)
_RUN = (
    """start summary --input '{"text": "One. Two."}'""",
    """start review --input '{"folder": "pipelines/review/sample"}'""",
)
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK_S = 300


def build() -> dict[str, Any]:
    """Return the committed build."""
    read: dict[str, Any] = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text())
    return read


def blocks(page: Path) -> list[str]:
    """Return the commands of a page, as they are pasted."""
    return _BLOCK.findall(page.read_text())


@dataclass
class Deployment:
    """One project, and what is deployed to it.

    Args:
        cloud: the project.
        recorder: of the recorded commands.
        machine: does the steps of builds.
        environ: of each command.
        url: of the runs API, as the proxy of gcloud would have it.
    """

    cloud: Cloud
    recorder: Recorder
    machine: BuildMachine
    environ: dict[str, str]
    url: str

    def paste(self, block: str) -> str:
        """Run a block in the one shell that a page is followed in; return what it prints."""
        block = block.replace("=shop-prod\n", f"={self.cloud.project}\n")
        block = block.replace(*_RUN)  # the workspace is this project
        block = block.replace("http://127.0.0.1:8080", self.url)
        said = ""
        for number, part in enumerate(_HERE.split(block)):
            said += self._call(part) if number % 2 else self._run_in_shell(part)
        return said

    def _call(self, command: str) -> str:
        done = leasehold_here(shlex.split(command), self.machine.workspace, self.environ)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _run_in_shell(self, commands: str) -> str:
        kept = self.machine.workspace.with_name("variables")
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", f"{commands}\nenv -0 > {kept}"],
            cwd=self.machine.workspace,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BLOCK_S,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        pairs = kept.read_text().rstrip("\0").split("\0")
        self.environ = dict(pair.split("=", 1) for pair in pairs)
        return done.stdout

    def submit(self, call: RecordedCall) -> None:
        """Do what `gcloud builds submit` has Cloud Build do."""
        self.build(
            **dict(pair.split("=", 1) for pair in str(call.flag("--substitutions")).split(","))
        )

    def build(self, already: Collection[str] = ("install",), **chosen: str) -> None:
        """Do the steps of the folder's build that are not `already` done: its packages are here."""
        self._pass_minutes()
        self.cloud.forget()
        self.recorder.forget()
        number = self.cloud.server.world.number
        chosen |= {"PROJECT_ID": self.cloud.project, "PROJECT_NUMBER": number}
        steps = yaml.safe_load((self.machine.workspace / "cloudbuild.yaml").read_text())
        is_done = self.machine.run(steps, already=already, **chosen)
        last = list(self.machine.done.items())[-1]
        assert is_done, (last[0], last[1].stdout, last[1].stderr)

    def _pass_minutes(self) -> None:
        """Let be ready what Google needs some minutes for, as indexes, and people, as secrets."""
        for function in FUNCTIONS:
            for secret in function.secrets:
                self.cloud.server.service(Secrets).give(secret.variable)
        self.cloud.server.service(FirestoreAdmin).build()
        self.cloud.server.service(Alerts).is_late = False

    def make_service(self, step: str) -> None:
        """Let there be what a deploy makes: a service, and Eventarc's subscription."""
        if not step.startswith("deploy-"):
            return
        call = self.deploy(step.removeprefix("deploy-"))
        region, service = str(call.flag("--region")), call.argv[3]
        self.cloud.server.service(Services).deploy(region, service)
        name = f"projects/{self.cloud.project}/subscriptions/eventarc-{region}-{service}-1-sub-2"
        known = self.cloud.clients.subscriber.list_subscriptions(
            {"project": f"projects/{self.cloud.project}"}, **ONE_TRY
        )
        if (topic := call.flag("--trigger-topic")) and name not in [one.name for one in known]:
            message = {
                "name": name,
                "topic": f"projects/{self.cloud.project}/topics/{topic}",
                "push_config": {
                    "push_endpoint": "https://x.example",
                    "oidc_token": {"service_account_email": call.flag("--trigger-service-account")},
                },
                "ack_deadline_seconds": 600,
            }
            self.cloud.clients.subscriber.create_subscription(message, **ONE_TRY)
            self.cloud.forget()

    def deploy(self, service: str) -> RecordedCall:
        """Return the call that deployed a service in the last build."""
        (call,) = self.recorder.calls("gcloud", "functions", "deploy", service)
        return call


@contextmanager
def deployment(folder: Path) -> Iterator[Deployment]:
    """Lend an empty project, and functions that run as soon as they are asked for."""
    recorder = Recorder(folder / "recorder", *RECORDED)
    options = DevOptions(
        port=own_port(),
        workers=1,
        data=folder / "data",
        environ=settings(folder) | INLINE | {"LEASEHOLD_CATALOG": "pipelines.catalog"},
    )
    server = DevServer(options, lambda _: None)
    with cloud_servers() as make_cloud, cloud_run(server.url) as front:
        server.start()
        try:
            recorder.answer("gcloud run services describe", f"{front.url}/serve-api\n")
            recorder.answer("gcloud auth print-identity-token", f"{TOKEN}\n")
            recorder.answer("gcloud config get account", "ann@example.com\n")
            cloud = make_cloud()
            cloud.server.service(Alerts).is_late = True  # no metric is known at once
            environ = {**environ_of(recorder), **cloud.environ, EMULATOR: front.url}
            environ["FIRESTORE_EMULATOR_HOST"] = firestore_host()  # it holds no run
            workspace = copy_source(folder / "workspace")
            built = environ | BY_TOKEN  # the account of a build asks its own machine for one
            machine = BuildMachine(workspace, built, IN_PROCESS)
            made = Deployment(cloud, recorder, machine, environ, server.url)
            machine.after = made.make_service
            yield made
        finally:
            server.stop()


def environ_of(recorder: Recorder) -> dict[str, str]:
    """Return what each command has in its environment."""
    outside = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return {**outside, "PATH": f"{recorder.bin}{os.pathsep}{os.environ['PATH']}"}
