"""docs/deploy.md, "A model's key": what is done by it, from the row of a function to its deploy."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from leasehold.deploy.tables import read_tables
from leasehold.registry.function_table import FUNCTIONS
from tests.deploy.build_machine import ROOT, BuildMachine, copy_source, deploy_here
from tests.deploy.cloud import Cloud
from tests.deploy.deployment import IN_PROCESS, RECORDED, environ_of
from tests.deploy.gcloud_commands import need_gcloud, problems_of
from tests.deploy.google_services.secrets import Secrets
from tests.deploy.recorder import Recorder

EMPTY = "VARIABLES: Final[Mapping[str, str]] = {}\n"
PAGE = (ROOT / "docs/deploy.md").read_text()
CHAPTER = PAGE.partition("\n## A model's key\n")[2].partition("\n## ")[0]
pytestmark = pytest.mark.skipif(
    bool(read_tables(ROOT).variables) or any(function.secrets for function in FUNCTIONS),
    reason="this project has done what the chapter says",
)
#: Of a build: what needs runs, or the services that are deployed.
LATER = ("install", "live-runs", "connect", "smoke")


def blocks() -> list[str]:
    """Return what the chapter has written, without what it is indented by."""
    found = re.findall(r"^( *)```text\n(.*?)^\1```$", CHAPTER, re.MULTILINE | re.DOTALL)
    return [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def follow(workspace: Path) -> None:
    """Change the files as the chapter has it."""
    imports, row, further, *_ = blocks()
    table = workspace / "deployment.py"
    text = re.sub(
        r"^from leasehold\.registry\.functions .*\n", imports, table.read_text(), flags=re.MULTILINE
    )
    kept, _, secret = row.strip().partition("\n")
    assert text.count(kept) == 1
    text = text.replace(kept, f"{kept}\n{secret}")
    assert text.count(EMPTY) == 1
    table.write_text(text.replace(EMPTY, further))


def test_the_chapter_leads_from_a_row_to_a_function_that_has_the_key(
    tmp_path: Path, cloud: Cloud
) -> None:
    need_gcloud()
    recorder = Recorder(tmp_path / "recorder", *RECORDED)
    workspace = copy_source(tmp_path / "workspace")
    environ = {**environ_of(recorder), **cloud.environ}
    machine = BuildMachine(workspace, environ, IN_PROCESS)
    values = {"PROJECT_ID": cloud.project, "PROJECT_NUMBER": cloud.server.world.number}

    follow(workspace)
    package, install, write, apply, give = blocks()[3].splitlines()
    assert install == ".venv/bin/pip install -r pipelines/requirements.txt"  # it is installed here
    here = environ | {"GOOGLE_CLOUD_PROJECT": cloud.project, "LEASEHOLD_REGION": "europe-west1"}
    paste(package, workspace, here)
    typed(write, workspace, here)
    applied = typed(apply, workspace, here)
    build: dict[str, Any] = yaml.safe_load((workspace / "cloudbuild.yaml").read_text())
    is_done = machine.run(build, already=LATER, **values)

    command = give.replace("--data-file=-", f"--project={cloud.project} --data-file=-")
    assert "created: secret OPENAI_API_KEY: waits for a person who gives it a value" in applied
    assert f"to repair it: {command}" in applied
    assert not is_done
    assert machine.done["provision"].stderr.splitlines()[-1] == (
        "error: nothing is deployed: secret OPENAI_API_KEY waits for a person who gives it a "
        f"value. Type: {command}"
    )
    assert recorder.calls("gcloud", "functions") == []

    cloud.server.service(Secrets).give("OPENAI_API_KEY")
    is_done = machine.run(build, already=(*LATER, "gate", "bundle"), **values)

    assert is_done, machine.done
    check_deploys(recorder, workspace)
    check_permissions(cloud)
    assert "openai==" in (workspace / "build/bundle/requirements.txt").read_text()
    assert cloud.server.called("AccessSecretVersion") == []


def paste(block: str, folder: Path, environ: dict[str, str]) -> None:
    subprocess.run(["/bin/sh", "-e", "-c", block], cwd=folder, env=environ, check=True)


def typed(command: str, folder: Path, environ: dict[str, str]) -> str:
    """Call a command of the chapter in this process; return what it prints."""
    program, deploy, *words = command.split()
    assert (program, deploy) == (".venv/bin/leasehold", "deploy")
    done = deploy_here(words, folder, environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_deploys(recorder: Recorder, workspace: Path) -> None:
    """Look at what each function is deployed with."""
    calls = {call.argv[3]: call for call in recorder.calls("gcloud", "functions", "deploy")}
    given = calls.pop("execute-step")
    assert given.flag("--set-secrets") == "OPENAI_API_KEY=OPENAI_API_KEY:latest"
    assert "--clear-secrets" not in given.argv
    assert list(problems_of(given.argv[1:])) == []
    settings = yaml.safe_load((workspace / str(given.flag("--env-vars-file"))).read_text())
    assert settings["REVIEW_AGENT"] == "openai"
    assert "OPENAI_API_KEY" not in settings
    notifier = calls.pop("deliver-notification")
    secrets = yaml.safe_load((workspace / str(notifier.flag("--flags-file"))).read_text())
    assert secrets == {"--clear-secrets": None}
    assert len(calls) == len(FUNCTIONS) - 2
    assert all("--clear-secrets" in call.argv for call in calls.values())


def check_permissions(cloud: Cloud) -> None:
    """Look at who may read the secret, and that no account may read all."""
    project = f"projects/{cloud.project}"
    (binding,) = cloud.server.world.policies[f"{project}/secrets/OPENAI_API_KEY"].bindings
    assert binding.role == "roles/secretmanager.secretAccessor"
    account = f"leasehold-execute-step@{cloud.project}.iam.gserviceaccount.com"
    assert [*binding.members] == [f"serviceAccount:{account}"]
    of_project = cloud.server.world.policies[project].bindings
    assert not [one.role for one in of_project if "secretmanager" in one.role]


def test_a_key_that_is_written_where_it_is_no_secret_is_refused_with_what_to_write(
    tmp_path: Path,
) -> None:
    workspace = copy_source(tmp_path / "workspace")
    table = workspace / "deployment.py"
    text = table.read_text().replace(EMPTY, EMPTY.replace("{}", '{"OPENAI_API_KEY": "sk-abcdef"}'))
    table.write_text(text)

    words = ("settings", "--project=shop-prod", "--project-number=123456789012")
    done = deploy_here([*words, "--region=europe-west1"], workspace, os.environ)

    assert done.returncode == 2
    assert done.stderr == (
        "error: OPENAI_API_KEY in VARIABLES of deployment.py is '[not shown]'; allowed: a "
        'secret, which `secrets=(Secret("OPENAI_API_KEY"),)` in a row of deployment.py gives '
        "to a function (docs/deploy.md#a-models-key).\n"
    )
