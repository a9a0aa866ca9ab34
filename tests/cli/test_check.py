"""`leasehold check` finds what is wrong before anything runs, all of it, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.worlds.shell import LEASEHOLD, Shell, only_line

STEPS = """
from pydantic import BaseModel

class Page(BaseModel):
    title: str

class Rated(BaseModel):
    title: str
    rating: int

def read(ctx, given: Page) -> Page:
    return given

def rate(ctx, given: Rated) -> Rated:
    return given

def alone(given):
    return given

def gate(ctx, output: "Nowhere"):
    pass
"""

CATALOG = """
from datetime import timedelta
from leasehold import GateEntry, PipelineEntry, Registry, StepDispatchEntry

def entry(name, handler, **fields):
    return StepDispatchEntry(step_type=name, handler=handler,
        agent_timeout=timedelta(minutes=1), dispatch_deadline=timedelta(minutes=2), **fields)

GATES = Registry("gates", [GateEntry(name="check", check="steps:gate")])
STEPS = Registry("dispatch", [
    entry("read", "steps:read"),
    entry("rate", "steps:rate"),
    entry("lost", "steps:lost"),
    entry("alone", "steps:alone", gates=("check",)),
    entry("torn", "torn:go"),
    entry("away", "remote", output="steps:Nothing"),
])
PIPELINES = Registry("pipelines", [PipelineEntry(name="pages", steps=("read", "rate"))])
"""


@pytest.fixture
def broken(shell: Shell) -> Shell:
    """A project that is wrong in every way that can be known."""
    (shell.folder / "steps.py").write_text(STEPS)
    (shell.folder / "catalog.py").write_text(CATALOG)
    (shell.folder / "torn.py").write_text("x = 1\nimport no_such_library\n")
    shell.settings["LEASEHOLD_CATALOG"] = "catalog"
    return shell


@pytest.fixture
def project(shell: Shell) -> Shell:
    """A project in order."""
    (shell.folder / "steps.py").write_text(STEPS)
    lines = [line for line in CATALOG.splitlines() if '    entry("' not in line or "read" in line]
    text = "\n".join(lines).replace('("read", "rate")', '("read",)').replace(":gate", ":read")
    (shell.folder / "catalog.py").write_text(text)
    shell.settings["LEASEHOLD_CATALOG"] = "catalog"
    return shell


def test_a_project_in_order_passes_in_one_line(project: Shell) -> None:
    before = project.files()

    done = project.run("check")

    assert (done.returncode, done.stdout + done.stderr) == (
        0,
        "nothing found: 1 step, 1 gate, 1 pipeline\n",
    )
    assert project.files() == before


def test_everything_is_found_at_once_with_its_place(broken: Shell) -> None:
    before = broken.files()

    done = broken.run(
        "check", PIPELINE_READ_TIMEOUT_MS="soon", PIPELINE_LEASE_TTL_S="-1", LEASEHOLD_TASKS="mq"
    )

    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert [line.partition(": ")[0] for line in lines[3:]] == [
        "catalog.py:13",
        "catalog.py:14",
        "torn.py:2",
        "catalog.py:16",
        "catalog.py:9",
        "steps.py:14",
    ]
    assert lines[0].startswith("LEASEHOLD_TASKS is 'mq'; allowed: ")
    assert lines[1].startswith("PIPELINE_LEASE_TTL_S is '-1'; allowed: ")
    assert lines[2].startswith("PIPELINE_READ_TIMEOUT_MS refused: it is 'soon'")
    assert lines[6].startswith("catalog.py:16: ")
    assert lines[7].startswith(
        "catalog.py:9: Check 'steps:gate' of gate 'check' does not resolve: "
    )
    assert lines[8] == (
        "steps.py:14: Pipeline 'pages': step 'read' gives Page, and step 'rate' takes Rated: "
        "it lacks 'rating', which is required. "
        "Change one of the two models; a field with a default may be left out."
    )
    assert broken.files() == before


def test_findings_are_given_as_json(broken: Shell) -> None:
    done = broken.run("check", "--json")

    answer = json.loads(done.stdout)
    codes = [finding["code"] for finding in answer["findings"]]
    assert (done.returncode, done.stderr) == (1, "")
    assert codes == ["handler_not_found"] * 5 + ["chain_broken"]
    assert answer["findings"][5]["file"] == "steps.py"
    assert answer["checked"] == {"steps": 6, "gates": 1, "pipelines": 1, "channels": 0}


def test_each_entry_action_that_does_not_resolve_is_found_and_no_run_is_started(
    project: Shell,
) -> None:
    catalog = (project.folder / "catalog.py").read_text()
    actions = (
        'entry("read", "steps:read", entry_actions=("steps:nowhere", "steps:read", "torn:go"))'
    )
    (project.folder / "torn.py").write_text("x = 1\nimport no_such_library\n")
    (project.folder / "catalog.py").write_text(
        catalog.replace('entry("read", "steps:read")', actions)
    )

    done = project.run("check")
    started = project.run("start", "pages", "--input", '{"title": "t"}', "--in-process")

    assert done.returncode == 1
    nowhere, torn = done.stdout.splitlines()
    assert nowhere == (
        "catalog.py:11: Entry action 'steps:nowhere' of step 'read' does not resolve: "
        "'steps' has no 'nowhere'."
    )
    assert torn.startswith("torn.py:2: Entry action 'torn:go' of step 'read' does not resolve: ")
    assert (started.returncode, started.stdout) == (2, "")
    assert "Entry action 'steps:nowhere' of step 'read'" in only_line(started.stderr)


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("def (:\n", "bad.py:1: "),
        ("x = 1\nraise SystemExit(3)\n", "bad.py:2: "),
        ("import sys\nsys.exit(0)\n", "bad.py:2: "),
        ("import os\nos._exit(0)\n", "bad.py:2: "),
        ("import leasehold\nleasehold.PipelineEntry(name='a b', steps=())\n", "bad.py:2: "),
        ("import no_such_library\n", "bad.py:1: "),
        ("x = 1\nint('seven')\n", "bad.py:2: "),
        ("x = 1\nlen(1)\n", "bad.py:2: "),
    ],
)
def test_a_catalog_that_cannot_be_imported_is_a_finding(
    shell: Shell, source: str, where: str
) -> None:
    (shell.folder / "bad.py").write_text(source)

    done = shell.run("check", LEASEHOLD_CATALOG="bad")

    assert done.returncode == 1
    assert only_line(done.stdout).startswith(where)


def test_registries_that_do_not_form_a_catalog_are_all_reported(broken: Shell) -> None:
    text = CATALOG.replace('gates=("check",)', 'gates=("chek",)').replace(
        '"read", "rate")', '"reed", "rate", "wrote")'
    )
    (broken.folder / "catalog.py").write_text(text + "\nfrom steps import Page\n")

    done = broken.run("check")

    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert [line.partition(" in the ")[0] for line in lines[:3]] == [
        "catalog.py:18: steps of 'pages'",
        "catalog.py:18: steps of 'pages'",
        "catalog.py:14: gates of 'alone'",
    ]
    assert len(lines) == 8


@pytest.mark.parametrize("catalog", ["nowhere", "nowhere.catalog", "", "a b", "../x"])
def test_without_a_catalog_nothing_is_checked(shell: Shell, catalog: str) -> None:
    done = shell.run("check", LEASEHOLD_CATALOG=catalog)

    assert (done.returncode, done.stdout) == (2, "")
    assert "LEASEHOLD_CATALOG" in only_line(done.stderr)


def test_what_modules_print_is_no_answer(project: Shell) -> None:
    (project.folder / "steps.py").write_text(STEPS + "\nprint('hello')\n")

    done = project.run("check", "--json")

    assert json.loads(done.stdout)["findings"] == []
    assert done.stderr == "hello\n"


def test_a_run_of_a_broken_chain_is_not_started(broken: Shell, tmp_path: Path) -> None:
    for how in ((), ("--in-process",)):
        done = broken.run("start", "pages", "--input", '{"title": "t"}', *how)

        assert (done.returncode, done.stdout) == (2, "")
        assert "step 'read' gives Page, and step 'rate' takes Rated" in only_line(done.stderr)
    assert broken.json("runs")["runs"] == []


@pytest.fixture
def long(project: Shell) -> Shell:
    """A project with a step of two hours."""
    catalog = project.folder / "catalog.py"
    catalog.write_text(catalog.read_text().replace("minutes=2", "hours=2"))
    return project


def test_it_says_where_a_step_of_two_hours_may_run(long: Shell) -> None:
    done, as_json = long.run("check"), long.run("check", "--json")
    homes = "leasehold serve and in process; not Cloud Functions (30 min)"
    words = f"step read has 2:00:00 an attempt: {homes}"

    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["nothing found: 1 step, 1 gate, 1 pipeline", words],
    )
    assert json.loads(as_json.stdout)["homes"] == {"read": ["leasehold serve", "in process"]}


def test_it_says_which_steps_share_a_process_between_attempts(project: Shell) -> None:
    catalog = project.folder / "catalog.py"
    catalog.write_text(catalog.read_text().replace("minutes=2)", "minutes=2), reuse=100"))

    done, as_json = project.run("check"), project.run("check", "--json")

    words = "so many of its attempts may run in one process, and what its modules keep in memory "
    line = f"step read has reuse=100: {words}is there in the next one"
    assert done.stdout.splitlines()[1:] == [line]
    assert json.loads(as_json.stdout)["reuse"] == {"read": 100}
    shown = project.run("registry", LEASEHOLD_ISOLATION="").stdout
    assert "read\tprocess, for 100 attempts (entry)\t" in shown


def test_a_step_of_two_hours_is_wrong_where_the_project_runs_on_cloud_tasks(long: Shell) -> None:
    done = long.run("check", LEASEHOLD_TASKS="cloud-tasks://p/europe-west1")

    assert done.returncode == 1
    assert "these steps have a longer dispatch deadline: read (2:00:00)" in done.stdout


GATED = """
from datetime import timedelta
from pydantic import BaseModel
from leasehold import GateContext, GateEntry, PipelineEntry, Registry
from leasehold import StepContext, StepDispatchEntry

class Page(BaseModel):
    title: str

class Rated(BaseModel):
    rating: int

def read(ctx: StepContext, given: Page) -> Page:
    return given

def is_rated(ctx: GateContext, output: Rated) -> None:
    pass

GATES = Registry("gates", [GateEntry(name="rated", check=is_rated)])
STEPS = Registry("dispatch", [StepDispatchEntry(step_type="read", handler=read, gates=("rated",),
    agent_timeout=timedelta(minutes=1), dispatch_deadline=timedelta(minutes=2))])
PIPELINES = Registry("pipelines", [PipelineEntry(name="pages", steps=("read",))])
"""


def test_a_gate_that_no_output_of_its_step_fits_is_found(shell: Shell) -> None:
    """Handlers and gates that are given as functions are checked as those of a path."""
    (shell.folder / "gated.py").write_text(GATED)
    found = shell.run("check", LEASEHOLD_CATALOG="gated")
    (shell.folder / "gated.py").write_text(GATED.replace("output: Rated", "output: Page"))
    mended = shell.run("check", LEASEHOLD_CATALOG="gated")

    assert found.returncode == 1
    assert only_line(found.stdout).startswith(
        "gated.py:16: Gate 'rated' of step 'read' takes Rated, and the step gives Page: it lacks "
        "'rating', which is required."
    )
    assert (mended.returncode, mended.stderr) == (0, "")


def test_a_summary_that_cannot_be_imported_is_found_and_a_run_is_started(shell: Shell) -> None:
    """It is announced without, so it is no reason to refuse work."""
    catalog = GATED.replace("output: Rated", "output: Page")
    catalog = catalog.replace('steps=("read",)', 'steps=("read",), summary="gated:in_a_word"')
    (shell.folder / "gated.py").write_text(catalog)

    found = shell.run("check", LEASEHOLD_CATALOG="gated")
    given = ("--input", '{"title": "Leases"}', "--in-process")
    ended = shell.run("start", "pages", *given, LEASEHOLD_CATALOG="gated")

    assert found.returncode == 1
    assert "Summary 'gated:in_a_word' of pipeline 'pages' does not resolve: 'gated' has no" in (
        only_line(found.stdout)
    )
    assert ended.returncode == 0


def test_a_run_of_a_catalog_of_functions_runs_in_processes_of_its_own(shell: Shell) -> None:
    (shell.folder / "gated.py").write_text(GATED.replace("output: Rated", "output: Page"))
    words = ("start", "pages", "--input", '{"title": "x"}', "--in-process", "--json")

    done = shell.process(*LEASEHOLD, *words, LEASEHOLD_CATALOG="gated", LEASEHOLD_ISOLATION="")

    assert json.loads(done.stdout)["output"] == {"title": "x"}, done.stderr
