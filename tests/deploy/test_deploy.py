"""docs/deploy.md leads from an empty project to a run, and cloudbuild.yaml does what it says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml

from docs.deployed import ACTED_AS, APIS, BUILDER_ROLES, DEPLOYER_ROLES
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, Trigger
from tests.deploy.build_machine import ROOT, BuildMachine, copy_source
from tests.deploy.deployment import (
    IN_PROCESS,
    RECORDED,
    Deployment,
    blocks,
    build,
    deployment,
    environ_of,
)
from tests.deploy.gcloud_commands import need_gcloud, problems_of
from tests.deploy.recorder import Recorder
from tests.worlds.emulators import need_firestore, need_pubsub

PAGE = ROOT / "docs/deploy.md"
ALL_STEPS = [step["id"] for step in build()["steps"]]
BEFORE_DEPLOYS = ALL_STEPS[: ALL_STEPS.index("settings") + 1]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_page_is_followed_from_an_empty_project_to_its_first_run(tmp_path: Path) -> None:
    """In one test, as it is one long story: each part of it needs what came before."""
    need_firestore()
    need_pubsub()
    need_gcloud()
    with deployment(tmp_path) as made:
        said = ""
        for block in blocks(PAGE):
            known = len(made.recorder.calls())
            said += made.paste(block)
            for call in made.recorder.calls()[known:]:
                assert list(problems_of(call.argv[1:])) == [] or call.argv[0] != "gcloud"
                if call.argv[:3] == ("gcloud", "builds", "submit"):
                    made.submit(call)
                    check_build(made)
                    check_second_build(made)

    assert '{"status":"ok"}' in said
    assert "COMPLETED" in said


def check_build(made: Deployment) -> None:
    """Look at what the build did for the first time."""
    assert list(made.machine.done) == [step for step in ALL_STEPS if step != "install"]
    gates = [
        call
        for call in made.recorder.calls("gcloud")
        if "--config=cloudbuild.gate.yaml" in call.argv
    ]
    assert [[*problems_of(call.argv[1:])] for call in gates] == [[]]
    for function in FUNCTIONS:
        check_deploy(made, function)
    looked_at = made.machine.done["live-runs"].stdout
    assert looked_at == "0 live runs looked at, 0 would block with this catalog\n"
    said = made.machine.done["smoke"].stdout
    assert said.count("ok      ") == len(said.splitlines()) == len(FUNCTIONS) + 3, said
    assert " of review completed in " in said


def check_deploy(made: Deployment, function: FunctionEntry) -> None:
    """Look at whether a function is deployed with what it needs, and as whom."""
    call = made.deploy(function.service)
    place, project = Path(call.cwd), made.cloud.project
    bundle = place / str(call.flag("--source"))
    settings = yaml.safe_load((place / str(call.flag("--env-vars-file"))).read_text())
    number = made.cloud.server.world.number

    assert list(problems_of(call.argv[1:])) == []
    assert (bundle / "main.py").is_file()
    assert (bundle / f"functions/{function.name}.py").is_file()
    assert settings["THREADS"] == call.flag("--concurrency") == str(function.concurrency)
    address = f"https://{function.service}-{number}.europe-west1.run.app"
    assert settings["LEASEHOLD_AUDIENCE"] == address
    account = f"leasehold-{function.service}@{project}.iam.gserviceaccount.com"
    assert call.flag("--run-service-account") == account
    if function.trigger is Trigger.EVENTS:
        assert call.flag("--trigger-service-account") == settings["LEASEHOLD_CALLERS"]
        assert settings["LEASEHOLD_EVENTS"] == f"pubsub://{project}/{call.flag('--trigger-topic')}"
        secrets = yaml.safe_load((place / str(call.flag("--flags-file"))).read_text())
        if not function.secrets:
            assert secrets == {"--clear-secrets": None}  # its one channel is the log


def check_second_build(made: Deployment) -> None:
    """Deploy once more: nothing is missing, so nothing is written."""
    before = [call.argv for call in made.recorder.calls("gcloud") if call.argv[1] != "builds"]
    made.cloud.forget()
    made.recorder.forget()
    values = {"PROJECT_ID": made.cloud.project, "PROJECT_NUMBER": made.cloud.server.world.number}

    is_done = made.machine.run(build(), already=(*BEFORE_DEPLOYS, "smoke"), **values)

    assert is_done, made.machine.done
    assert made.cloud.writes() == []
    assert [call.argv for call in made.recorder.calls("gcloud")] == before


# -- a build that does not get to its end ---------------------------------------------------------


@pytest.mark.parametrize(
    ("fails", "already", "begun"),
    [
        ("gcloud builds submit", (), ["gate"]),
        ("python -m venv .venv", (), ["gate", "install"]),
        (
            "gcloud functions deploy serve-api",
            BEFORE_DEPLOYS,
            ["deploy-execute-step", "environment-execute-step", "deploy-serve-api"],
        ),
    ],
)
def test_what_fails_stops_what_waits_for_it(
    tmp_path: Path, fails: str, already: list[str], begun: list[str]
) -> None:
    recorder = Recorder(tmp_path / "recorder", *RECORDED, "python")
    recorder.fail(fails)
    machine = BuildMachine(tmp_path, environ_of(recorder))

    is_done = machine.run(build(), already=already, PROJECT_ID="p", PROJECT_NUMBER="1")

    assert not is_done
    assert list(machine.done) == begun


def test_the_gate_skips_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "recorder", *RECORDED)
    machine = BuildMachine(tmp_path, environ_of(recorder))
    gate = yaml.safe_load((ROOT / "cloudbuild.gate.yaml").read_text()) | {"substitutions": {}}

    assert machine.run(gate, PROJECT_ID="p", PROJECT_NUMBER="1")

    (check,) = recorder.calls("make")
    assert check.argv == ("make", "check")
    assert check.env["LEASEHOLD_REQUIRE_EMULATORS"] == check.env["LEASEHOLD_REQUIRE_AUDIT"] == "1"


def test_a_build_goes_on_where_no_environment_can_be_chosen(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "recorder", *RECORDED)
    recorder.fail("gcloud run services update execute-step")
    machine = BuildMachine(tmp_path, environ_of(recorder))
    already = (*BEFORE_DEPLOYS, "connect", "smoke")

    is_done = machine.run(build(), already=already, PROJECT_ID="p", PROJECT_NUMBER="1")

    assert is_done
    assert machine.done["environment-execute-step"].returncode != 0
    assert list(machine.done)[-1] == "deploy-deliver-notification"


def test_an_unknown_region_ends_the_build_before_anything_is_deployed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "recorder", *RECORDED)
    machine = BuildMachine(copy_source(tmp_path / "workspace"), environ_of(recorder), IN_PROCESS)
    place = {"PROJECT_ID": "shop-prod", "PROJECT_NUMBER": "123456789012", "_REGION": "Belgium"}

    is_done = machine.run(build(), already=ALL_STEPS[:3], **place)

    said = machine.done["live-runs"].stderr
    assert not is_done
    assert said.startswith("error: --region is 'Belgium'; allowed: ")
    assert said.count("\n") == 1
    assert recorder.calls("gcloud") == []


# -- what the page says, and what the tables say ---------------------------------------------------


def test_the_page_gives_each_role_that_its_tables_have() -> None:
    page = PAGE.read_text()
    deployer, builder = (words_of_loop(block) for block in blocks(PAGE) if "for role in" in block)
    (conditional,) = set(re.findall(r"--role=roles/(\S+) \\\n +--condition='title=", page))

    assert deployer == [role.removeprefix("roles/") for role, _ in DEPLOYER_ROLES]
    assert [*builder, conditional] == [role.removeprefix("roles/") for role, _ in BUILDER_ROLES]
    assert all(api in page for api in APIS)
    assert not {"roles/owner", "roles/editor", "roles/viewer"} & set(page.split("`"))


def test_the_deployer_may_act_as_the_accounts_that_it_names_and_no_others() -> None:
    (loop,) = [words_of_loop(block) for block in blocks(PAGE) if "for account in" in block]

    named = [*(function.account for function in FUNCTIONS), *ACTED_AS]
    assert [f"leasehold-{account}" for account in loop] == named


def words_of_loop(block: str) -> list[str]:
    """Return what the first loop of a block goes through."""
    _, _, rest = block.replace("\\\n", " ").partition(" in ")
    return rest.partition("\ndo")[0].split()
