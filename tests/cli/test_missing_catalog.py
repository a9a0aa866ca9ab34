"""No catalog, or a setting that was never set: what to type; and what works without all of it."""

from __future__ import annotations

import json

import pytest

from tests.worlds.ports import own_port
from tests.worlds.shell import Shell, only_line

ORDER = ("start", "order", "--input", '{"amount": 3}')
FAR = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry

minute = timedelta(minutes=1)
far = StepDispatchEntry(
    step_type="far", handler="remote", agent_timeout=minute, dispatch_deadline=2 * minute
)
STEPS = Registry("dispatch", [far])
PIPELINES = Registry("pipelines", [PipelineEntry(name="far", steps=("far",))])
"""
NOWHERE = {"LEASEHOLD_CATALOG": "nowhere.at_all"}


def refused(shell: Shell, *words: str, **settings: str) -> str:
    done = shell.run(*words, **settings)
    assert (done.returncode, done.stdout) == (2, "")
    return only_line(done.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ORDER,
        (*ORDER, "--in-process"),
        ("registry",),
        ("sweep",),
        ("audit", "--repair"),
        ("retry", "r-1"),
        ("dev", "--port"),
    ],
    ids=" ".join,
)
def test_what_needs_a_catalog_says_how_to_get_one(empty: Shell, words: tuple[str, ...]) -> None:
    port = [str(own_port())] if words[-1] == "--port" else []

    line = refused(empty, *words, *port)

    assert "'pipelines.catalog' (the default of LEASEHOLD_CATALOG) is not a module in" in line
    assert "Type `leasehold init FOLDER` for a new project, or set LEASEHOLD_CATALOG" in line
    assert empty.files() == []


def test_a_catalog_that_is_named_and_not_there_is_named_again(empty: Shell) -> None:
    assert "'nowhere.at_all' (LEASEHOLD_CATALOG)" in refused(empty, "registry", **NOWHERE)


@pytest.mark.parametrize("name", ["", ".catalog", "pipelines.", "pipelines/catalog.py"])
def test_a_name_that_no_module_can_have_is_answered_as_one_that_is_not_there(
    empty: Shell, name: str
) -> None:
    line = refused(empty, "registry", LEASEHOLD_CATALOG=name)

    assert f"There is no catalog: {name!r} (LEASEHOLD_CATALOG) is not a module in " in line
    assert "Type `leasehold init FOLDER` for a new project, or set LEASEHOLD_CATALOG" in line


def test_a_catalog_may_lie_in_a_folder_whose_name_no_import_statement_can_have(
    empty: Shell,
) -> None:
    """Python imports it by its name, and servers began with it."""
    (empty.folder / "my-app").mkdir()
    (empty.folder / "my-app/catalog.py").write_text("STEPS = PIPELINES = None\n")

    line = refused(empty, "registry", LEASEHOLD_CATALOG="my-app.catalog")

    assert line.endswith("'my-app.catalog' cannot be used: it has no STEPS, a Registry.")


def test_a_module_that_a_catalog_lacks_is_not_taken_for_the_catalog(empty: Shell) -> None:
    (empty.folder / "mine.py").write_text("\nimport openai_of_ones_own")

    line = refused(empty, "registry", LEASEHOLD_CATALOG="mine")

    assert (
        "importing it raised ModuleNotFoundError: No module named 'openai_of_ones_own', "
        "at mine.py:2 (<module>); install its package (a function has those that its "
        "requirements.txt names)."
    ) in line


@pytest.mark.parametrize("words", [("runs",), ("audit",)], ids=" ".join)
def test_a_folder_without_anything_can_be_looked_at(empty: Shell, words: tuple[str, ...]) -> None:
    assert empty.run(*words).returncode == 0
    assert empty.files() == []


def test_a_run_is_seen_and_stopped_without_its_catalog(shell: Shell) -> None:
    """The person on call has the store, and not always the code."""
    run_id = json.loads(shell.run(*ORDER, "--json").stdout)["runId"]
    explained = shell.json("why", run_id)["words"]
    shell.settings |= NOWHERE

    assert shell.json("why", run_id)["words"] == explained
    assert shell.json("show", run_id)["status"] == "PENDING"
    assert shell.json("trace", run_id)["events"]
    assert shell.json("pause", run_id)["paused"]
    assert shell.json("audit")["found"] == []
    assert shell.json("batch", "cancel", "--pipeline", "order", "--limit", "9")["changed"] == 1
    assert shell.json("runs")["runs"][0]["cancelled"]


def test_why_of_a_remote_step_needs_no_catalog_either(shell: Shell) -> None:
    (shell.folder / "far.py").write_text(FAR)
    remote = {"LEASEHOLD_CATALOG": "far"}
    started = shell.run("start", "far", "--json", **remote)
    run_id = json.loads(started.stdout)["runId"]
    explained = shell.run("why", run_id, **remote).stdout

    assert "a remote worker to claim attempt 1" in explained
    assert shell.run("why", run_id, **NOWHERE).stdout == explained


def test_a_default_that_cannot_be_used_is_not_taken_for_a_setting(empty: Shell) -> None:
    (empty.folder / ".leasehold").touch()

    line = refused(empty, "runs")

    assert "LEASEHOLD_ARTIFACTS is not set, and its default file://.leasehold/artifacts" in line
    assert "set it to file://FOLDER, or gs://BUCKET/PREFIX that can be written" in line


def test_a_setting_that_another_one_needs_is_named_with_it(empty: Shell) -> None:
    line = refused(empty, "runs", LEASEHOLD_TASKS="cloud-tasks://project/location")

    assert "LEASEHOLD_FUNCTION_URL is not set, and LEASEHOLD_TASKS=cloud-tasks://project" in line
    assert "set it to the http://… or https://… address" in line
