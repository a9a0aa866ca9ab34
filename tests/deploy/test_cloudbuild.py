"""cloudbuild.yaml is what the table says, and what Cloud Build takes."""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.deployed import GATE_ROLES
from leasehold.cli.deploy import cloudbuild
from leasehold.deploy.tables import Tables, read_tables
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionTable, Secret
from tests.deploy.build_rules import problems
from tests.deploy.cloud import deploy
from tests.deploy.gcloud_commands import need_gcloud

ROOT = Path(__file__).parents[2]
Build = dict[str, Any]


@pytest.fixture
def build() -> Build:
    read: Build = yaml.safe_load((ROOT / cloudbuild.FILE).read_text())
    return copy.deepcopy(read)


def step(build: Build, name: str) -> dict[str, Any]:
    (found,) = (step for step in build["steps"] if step["id"] == name)
    return dict(found)


def flags(build: Build, service: str) -> dict[str, str]:
    words = step(build, f"deploy-{service}")["args"][3:]
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def test_the_committed_file_is_what_the_table_says() -> None:
    wanted = cloudbuild.text(cloudbuild.build(read_tables(ROOT), has_gate=True))

    assert (ROOT / cloudbuild.FILE).read_text() == wanted, "run: leasehold deploy init"


@pytest.mark.parametrize("word", ["--chek", "elsewhere.yaml", "--help"])
def test_words_that_it_does_not_have_write_nothing(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    deploy(["init", word])

    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_catalog_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is most likely the wrong one, and to ask pip for all hashes takes minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEASEHOLD_CATALOG", "shop.catalog")

    code = deploy(["init"])

    assert code == 2
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == (
        f"error: there is no catalog shop.catalog: shop/catalog.py is missing in {tmp_path}. Work "
        "in the folder of your project, set LEASEHOLD_CATALOG, or begin one: leasehold init\n"
    )


def test_a_catalog_may_be_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEASEHOLD_CATALOG", "shop")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("")

    assert deploy(["init", "--check"]) == 1
    assert (
        "error: there is no deployment.py; type: leasehold deploy init" in capsys.readouterr().err
    )


def test_a_build_of_the_user_s_own_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEASEHOLD_CATALOG", "shop")
    (tmp_path / "shop.py").write_text("")
    (tmp_path / cloudbuild.FILE).write_text("steps: []\n")

    code = deploy(["init"])

    assert code == 2
    assert "is not one that this command wrote: move it away" in capsys.readouterr().err
    assert (tmp_path / cloudbuild.FILE).read_text() == "steps: []\n"
    assert sorted(it.name for it in tmp_path.iterdir()) == [cloudbuild.FILE, "shop.py"]


@pytest.mark.parametrize("folders", [(), ("pipelines",), ("my pipelines", "shop")])
def test_a_build_installs_what_each_folder_needs(
    build: Build, tmp_path: Path, folders: tuple[str, ...]
) -> None:
    """Also where its requirements came after `leasehold deploy init`; the bundle wants them."""
    for name in folders:
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text("tabulate\n")
    pip = '#!/bin/sh\nprintf "%s\\n" "$@" >"$PWD/words"\n'
    python = f"#!/bin/sh\nmkdir -p .venv/bin && cat >.venv/bin/python <<'E'\n{pip}E\n"
    made = tmp_path / "bin" / "python"
    made.parent.mkdir()
    made.write_text(f"{python}chmod +x .venv/bin/python\n")
    made.chmod(0o755)

    install = step(build, "install")
    script = install["args"][1].replace("$$", "$")
    environ = os.environ | {"PATH": f"{made.parent}:{os.environ['PATH']}"}
    subprocess.run([install["entrypoint"], "-c", script], cwd=tmp_path, env=environ, check=True)

    words = (tmp_path / "words").read_text().splitlines()
    assert words[words.index("-r") :] == [
        *("-r", "requirements.txt"),
        *(word for name in folders for word in ("-r", f"{name}/requirements.txt")),
    ]


def test_cloud_build_takes_it(build: Build) -> None:
    need_gcloud()

    assert problems(build) == []


def test_the_gate_runs_as_an_account_that_deploys_nothing_and_before_all_else(
    build: Build,
) -> None:
    need_gcloud()
    gate = yaml.safe_load((ROOT / cloudbuild.GATE_FILE).read_text())
    account = "projects/$PROJECT_ID/serviceAccounts/leasehold-gate@$PROJECT_ID"

    assert problems(gate) == []
    assert gate["serviceAccount"] == f"{account}.iam.gserviceaccount.com"
    assert [role for role, _ in GATE_ROLES] == ["roles/logging.logWriter"]
    assert step(build, "gate")["args"][:4] == [
        *("builds", "submit", "."),
        "--config=cloudbuild.gate.yaml",
    ]
    assert step(build, "install")["waitFor"] == ["gate"]
    deploying = [*step(build, "install")["args"], *step(build, "bundle")["args"]]
    assert not any("make" in word or ".dev" in word for word in deploying)


def test_each_function_is_deployed_and_what_follows_waits_for_all_of_them(build: Build) -> None:
    deploys = [f"deploy-{function.service}" for function in FUNCTIONS]
    chosen = "environment-execute-step"

    assert [found["id"] for found in build["steps"]] == [
        *("gate", "install", "bundle", "live-runs", "provision", "settings"),
        *(deploys[0], chosen, *deploys[1:]),
        *("connect", "smoke"),
    ]
    assert all(step(build, name)["waitFor"] == ["settings"] for name in deploys)
    assert step(build, "connect")["waitFor"] == [deploys[0], chosen, *deploys[1:]]


def test_steps_run_in_the_second_generation_environment_once_they_are_deployed(
    build: Build,
) -> None:
    """A command that `functions deploy` has no flag for; no deploy fails for it."""
    chosen = step(build, "environment-execute-step")

    assert chosen["args"] == [
        *("run", "services", "update", "execute-step"),
        *("--quiet", "--project=$PROJECT_ID", "--region=${_REGION}"),
        "--execution-environment=gen2",
    ]
    assert chosen["waitFor"] == ["deploy-execute-step"]
    assert chosen["allowFailure"] is True


@pytest.mark.parametrize("function", FUNCTIONS, ids=FUNCTIONS.keys())
def test_a_function_is_deployed_with_what_its_row_says(build: Build, function: Any) -> None:
    given = flags(build, function.service)

    assert given["--entry-point"] == function.name
    assert given["--timeout"] == f"{function.timeout.total_seconds():.0f}s"
    assert given["--memory"] == f"{function.memory_mib}Mi"
    assert given["--cpu"] == f"{function.cpu:g}"
    assert given["--concurrency"] == str(function.concurrency)
    assert given["--min-instances"] == str(function.min_instances)
    assert given["--max-instances"] == str(function.max_instances)
    assert given["--run-service-account"].startswith(f"{function.account}@")
    assert given["--env-vars-file"].endswith(f"/{function.service}.yaml")


def test_only_functions_for_people_are_reached_from_outside_and_only_with_a_token(
    build: Build,
) -> None:
    for function in FUNCTIONS:
        given = flags(build, function.service)

        is_called_by_people = function.name in {"serve_api", "manage_lease"}
        assert given["--ingress-settings"] == ("all" if is_called_by_people else "internal-only")
        assert "--allow-unauthenticated" not in given
        assert "--no-allow-unauthenticated" in given


def test_events_are_repeated_and_their_function_has_the_secrets_of_channels(build: Build) -> None:
    given = flags(build, "deliver-notification")
    others = [flags(build, f.service) for f in FUNCTIONS if f.name != "deliver_notification"]

    assert given["--trigger-topic"] == "${_TOPIC}"
    assert "--retry" in given
    assert given["--trigger-service-account"].startswith("leasehold-events@")
    assert "--flags-file" in given
    assert all("--retry" not in other and "--flags-file" not in other for other in others)


def test_a_function_has_the_secrets_of_its_row_and_no_others() -> None:
    """Settings by hand are gone with the next build of each function."""
    secrets = (Secret("OPENAI_API_KEY"), Secret("SEARCH_KEY", version="7"))
    rows = [
        replace(row, secrets=secrets if row.name == "execute_step" else ()) for row in FUNCTIONS
    ]
    tables = Tables(FunctionTable(rows))

    build = yaml.safe_load(cloudbuild.text(cloudbuild.build(tables, has_gate=True)))

    of_step = flags(build, "execute-step")
    others = [flags(build, name) for name in ("serve-api", "manage-lease", "sweep-dead-letters")]
    assert of_step["--set-secrets"] == (
        "OPENAI_API_KEY=OPENAI_API_KEY:latest,SEARCH_KEY=SEARCH_KEY:7"
    )
    assert "--clear-secrets" not in of_step
    assert all("--clear-secrets" in other and "--set-secrets" not in other for other in others)
    need_gcloud()
    assert problems(build) == []


def _without(*keys: str) -> Callable[[Build], None]:
    def change(build: Build) -> None:
        for key in keys[:-1]:
            build = build[key]
        del build[keys[-1]]

    return change


def _step(**changes: Any) -> Callable[[Build], None]:
    """Change the step `smoke`."""
    return lambda build: build["steps"][-1].update(changes)


def _add(*words: str) -> Callable[[Build], None]:
    """Give the last function that is deployed further words."""
    return lambda build: build["steps"][-3]["args"].extend(words)


MISTAKES: dict[str, tuple[Callable[[Build], None], str]] = {
    "a field that is none": (_step(waitfor=["connect"]), 'no field named "waitfor"'),
    "a duration that is none": (lambda b: b.update(timeout="30m"), "not a build"),
    "args that are no list": (_step(args="deploy smoke"), "not a build"),
    "a step that waits for none": (_step(waitFor=["conect"]), "waits for 'conect'"),
    "a step that waits for a later one": (
        lambda b: b["steps"][0].update(waitFor=["smoke"]),
        "gate waits for 'smoke'",
    ),
    "a step that does not say": (_step(waitFor=[]), "smoke does not say what it waits for"),
    "a step without an id": (_step(id=""), "has no id"),
    "an id twice": (_step(id="connect"), "two steps have the id 'connect'"),
    "no step": (lambda b: b.update(steps=[]), "it has no step"),
    "an undeclared substitution": (_step(args=["${_ZONE}"]), "$_ZONE is neither declared"),
    "a variable of the shell": (_step(args=["-c", "echo $HOME"]), "for the shell: $$HOME"),
    "a substitution in a script": (
        _step(entrypoint="bash", args=["-c", "echo ${_REGION}"]),
        "$_REGION is a part of a script; give it in env",
    ),
    "what a trigger alone sets": (_step(args=["$COMMIT_SHA"]), "$COMMIT_SHA is neither"),
    "a substitution in small letters": (
        lambda b: b["substitutions"].update(_zone="a"),
        "'_zone' is not of _, A-Z",
    ),
    "an unused substitution": (
        lambda b: b["substitutions"].update(_ZONE="a"),
        "_ZONE is not used",
    ),
    "no account": (_without("serviceAccount"), "it runs as no account of its own"),
    "an account and no log": (_without("options", "logging"), "needs options.logging"),
    "less time than the steps": (lambda b: b.update(timeout="60s"), "and it has 60 s"),
    "a command that is none": (
        _step(entrypoint="gcloud", args=["function", "deploy", "x"]),
        "gcloud has no command 'function deploy x'",
    ),
    "a flag that is none": (_add("--region-name=here"), "has no flag --region-name"),
    "a flag twice": (_add("--gen2"), "--gen2 is given twice"),
    "a flag and its opposite": (_add("--retry", "--no-retry"), "--retry is given twice"),
    "a value that is not allowed": (
        lambda b: (
            b["steps"][-3]["args"].remove("--ingress-settings=internal-only")
            or _add("--ingress-settings=internal")(b)
        ),
        "--ingress-settings is 'internal'; allowed: all",
    ),
    "a flag without its value": (_add("--stage-bucket"), "--stage-bucket needs a value"),
    "a value too many": (_add("--clear-labels=yes"), "--clear-labels takes no value"),
    "two triggers": (_add("--trigger-bucket=b"), "it needs one trigger"),
    "gcloud in an image without it": (
        lambda b: b["steps"][-3].update(name="python:3.12"),
        "calls gcloud, which its image does not have",
    ),
    "a mistake in a script": (
        _step(
            name="gcr.io/google.com/cloudsdktool/google-cloud-cli:slim",
            entrypoint="bash",
            args=["-c", "set -e\ngcloud pubsub topics \\\n  make t"],
        ),
        "gcloud has no command 'pubsub topics make t'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=MISTAKES.keys())
def test_a_planted_mistake_is_found(build: Build, mistake: str) -> None:
    need_gcloud()
    plant, told = MISTAKES[mistake]

    plant(build)

    assert any(told in problem for problem in problems(build)), problems(build)
