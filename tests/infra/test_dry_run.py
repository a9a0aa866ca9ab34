"""The steps of cloudbuild.yaml, done in their order on this machine.

Really done: the bundle, provisioning against local servers of Google's APIs, the settings, the
smoke test. Only written down: gcloud, and what prepares and runs the gate.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import cloudbuild
from infra.functions import FUNCTIONS
from infra.service_calls import EMULATOR
from leasehold.live.clients import EMULATOR as GOOGLE
from leasehold.registry.functions import FunctionEntry, Trigger
from leasehold.testing import InProcessEngine
from tests.builders import environ_of
from tests.infra.build_machine import BuildMachine, copy_source
from tests.infra.cloud_run import BY_TOKEN, cloud_run
from tests.infra.gcloud_commands import need_gcloud, problems_of
from tests.infra.google_server import GoogleServer
from tests.infra.google_services.run import CloudRun as CloudRunServices
from tests.infra.recorder import RecordedCall, Recorder
from tests.runs_api import runs_api

SUBSTITUTIONS = {
    "PROJECT_ID": "shop-prod",
    "PROJECT_NUMBER": "123456789012",
    "_REGION": "us-central1",
    "_RETENTION_DAYS": "30",
    "_CALLERS": "group:ops@example.com user:ann@example.com",
}


@dataclass
class DryRun:
    machine: BuildMachine
    recorder: Recorder
    google: GoogleServer

    def run(self, build: dict[str, Any]) -> bool:
        return self.machine.run(build, **SUBSTITUTIONS)

    def deploy(self, service: str) -> RecordedCall:
        (call,) = self.recorder.calls("gcloud", "functions", "deploy", service)
        return call


def build() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(cloudbuild.FILE.read_text())
    return read


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DryRun]:
    folder = tmp_path_factory.mktemp("dry-run")
    recorder = Recorder(folder / "recorder", "gcloud", "make", "apt-get", "cp")
    environ = environ_of(folder, LEASEHOLD_CATALOG="pipelines.catalog")
    with (
        GoogleServer() as google,
        InProcessEngine(environ=environ, workers=2) as engine,
        runs_api(engine.engine) as api,
        cloud_run(api) as front,
    ):
        outside = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        settings = {
            **outside,
            **BY_TOKEN,
            "PATH": f"{recorder.bin}{os.pathsep}{os.environ['PATH']}",
            GOOGLE: google.address,
            EMULATOR: front.url,
        }
        machine = BuildMachine(copy_source(folder / "workspace"), settings)
        run = DryRun(machine, recorder, google)
        machine.after = lambda step: _deployed(run, step)
        yield run


def _deployed(run: DryRun, step: str) -> None:
    """Let there be the service that a deploy makes."""
    if step.startswith("deploy-"):
        services = run.google.service(CloudRunServices)
        services.deploy(SUBSTITUTIONS["_REGION"], step.removeprefix("deploy-"))


@pytest.fixture(scope="module")
def first(dry_run: DryRun) -> DryRun:
    """The first build of an empty project."""
    is_done = dry_run.run(build())

    told = {name: (done.stdout, done.stderr) for name, done in dry_run.machine.done.items()}
    assert is_done, told
    return dry_run


def test_every_step_is_done_in_its_order(first: DryRun) -> None:
    deploys = [f"deploy-{function.service}" for function in FUNCTIONS]

    assert list(first.machine.done) == [
        *("emulators", "check", "bundle", "provision", "settings"),
        *deploys,
        *("connect", "smoke"),
    ]
    (check,) = first.recorder.calls("make")
    assert check.argv == ("make", "check", "audit")
    assert check.env["LEASEHOLD_REQUIRE_EMULATORS"] == "1"
    assert check.env["LEASEHOLD_REQUIRE_AUDIT"] == "1"


functions = pytest.mark.parametrize("function", FUNCTIONS, ids=FUNCTIONS.keys())


@functions
def test_a_deploy_has_a_bundle_with_its_entry_and_settings_that_fit_it(
    first: DryRun, function: FunctionEntry
) -> None:
    need_gcloud()
    call = first.deploy(function.service)
    place = Path(call.cwd)

    assert list(problems_of(call.argv[1:])) == []
    assert (place / str(call.flag("--source")) / "main.py").is_file()
    assert (place / str(call.flag("--source")) / f"functions/{function.name}.py").is_file()
    settings = yaml.safe_load((place / str(call.flag("--env-vars-file"))).read_text())
    assert settings["THREADS"] == call.flag("--concurrency") == str(function.concurrency)
    assert settings["LEASEHOLD_RETENTION_DAYS"] == "30"
    address = f"https://{function.service}-123456789012.us-central1.run.app"
    assert settings["LEASEHOLD_AUDIENCE"] == address
    account = call.flag("--run-service-account")
    assert account == f"leasehold-{function.service}@shop-prod.iam.gserviceaccount.com"


def test_who_signs_in_is_whom_the_function_believes(first: DryRun) -> None:
    """Eventarc signs in as the account of the trigger; the others are told by their own settings."""
    (function,) = (function for function in FUNCTIONS if function.trigger is Trigger.EVENTS)
    call = first.deploy(function.service)
    settings = yaml.safe_load((Path(call.cwd) / str(call.flag("--env-vars-file"))).read_text())

    assert call.flag("--trigger-service-account") == settings["LEASEHOLD_CALLERS"]
    assert settings["LEASEHOLD_EVENTS"] == f"pubsub://shop-prod/{call.flag('--trigger-topic')}"
    secrets = yaml.safe_load((Path(call.cwd) / str(call.flag("--flags-file"))).read_text())
    assert secrets == {"--clear-secrets": None}  # the catalog's channel is the log


def test_the_smoke_test_had_a_run_completed(first: DryRun) -> None:
    said = first.machine.done["smoke"].stdout

    assert " of review completed in " in said, said


def test_a_second_build_writes_nothing_but_deploys_again(first: DryRun) -> None:
    before = [call.argv for call in first.recorder.calls("gcloud")]
    first.google.forget()
    first.recorder.forget()

    is_done = first.run(build())

    assert is_done
    assert first.google.writes() == []
    assert [call.argv for call in first.recorder.calls("gcloud")] == before
    assert "nothing changed" in first.machine.done["bundle"].stdout


@pytest.mark.parametrize(
    ("fails", "last"),
    [
        ("make check", "check"),
        ("gcloud functions deploy serve-api", "deploy-serve-api"),
    ],
)
def test_what_fails_stops_what_waits_for_it(
    dry_run: DryRun, tmp_path: Path, fails: str, last: str
) -> None:
    recorder = Recorder(tmp_path / "recorder", "gcloud", "make", "apt-get", "cp")
    path = f"{recorder.bin}{os.pathsep}{dry_run.machine.environ['PATH']}"
    machine = BuildMachine(dry_run.machine.workspace, {**dry_run.machine.environ, "PATH": path})
    recorder.fail(fails)
    quick = build()
    quick["steps"] = [step for step in quick["steps"] if step["name"] == cloudbuild.GCLOUD_IMAGE]
    for step in quick["steps"]:
        step["waitFor"] = ["-"]
    if last == "check":
        quick = build()

    assert not machine.run(quick, **SUBSTITUTIONS)

    assert list(machine.done)[-1] == last
