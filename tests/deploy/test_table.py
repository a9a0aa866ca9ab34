"""Files that follow the table of functions by hand agree with it."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from docs.deployed import TRIGGER_WORDS, functions
from leasehold.cli.deploy import cloudbuild
from leasehold.deploy.tables import read_tables
from leasehold.registry.function_table import FUNCTIONS
from leasehold.registry.functions import FunctionEntry, Trigger
from tests.deploy.cloud import deploy

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "shared/leasehold/functions"
ENTRIES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "__init__")

#: What the header of an entry file begins its line "Called by" with.
CALLED_BY = {
    Trigger.TASKS: "Cloud Tasks",
    Trigger.SCHEDULE: "Cloud Scheduler",
    Trigger.EVENTS: "Pub/Sub",
    Trigger.REQUESTS: "people and programs",
    Trigger.WORKERS: "workers",
}


def test_this_project_deploys_what_a_new_one_does() -> None:
    assert list(read_tables(ROOT).functions) == list(FUNCTIONS)


def test_each_entry_file_has_its_row() -> None:
    assert [path.stem for path in ENTRIES] == sorted(FUNCTIONS.keys())


def test_the_contract_that_entries_do_not_know_each_other_names_all_of_them() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (modules,) = (it["modules"] for it in lint["contracts"] if it["type"] == "independence")

    assert sorted(modules) == sorted(f"leasehold.functions.{name}" for name in FUNCTIONS.keys())  # noqa: SIM118 - it iterates over rows


@pytest.mark.parametrize("entry", FUNCTIONS, ids=lambda entry: entry.name)
def test_an_entry_file_says_what_its_row_says(entry: FunctionEntry) -> None:
    source = ast.parse((FOLDER / f"{entry.name}.py").read_text())
    header = (ast.get_docstring(source) or "").splitlines()
    (called_by,) = (it.split(":", 1)[1].strip() for it in header if it.startswith("Called by:"))

    assert header[0].startswith(f"Cloud Function {entry.service}: ")
    assert called_by.startswith(CALLED_BY[entry.trigger])
    assert entry.name in [it.name for it in source.body if isinstance(it, ast.FunctionDef)]


def test_a_new_project_may_have_all_instances_of_all_functions_at_once() -> None:
    """A quota is of a project and region: what steps take of it, the sweep does not get."""
    cpus, memory_gib = (
        20,
        40,
    )  # CpuAllocPerProjectRegion 20000, MemAllocPerProjectRegion 42949672960

    assert sum(entry.max_instances * entry.cpu for entry in FUNCTIONS) <= cpus
    assert sum(entry.max_instances * entry.memory_mib for entry in FUNCTIONS) <= memory_gib * 1024


def test_the_docs_have_a_row_for_each_function() -> None:
    lines = functions().splitlines()[2:]

    assert set(TRIGGER_WORDS) == set(Trigger)
    assert [line.split("`")[1] for line in lines] == [entry.service for entry in FUNCTIONS]
    assert "1860 s" in lines[0]
    assert "`* * * * *` (UTC)" in lines[3]


def test_a_table_from_before_limits_were_derived_is_taken_as_it_is(tmp_path: Path) -> None:
    text = (ROOT / "deployment.py").read_text()
    rows = text.split("        FunctionEntry(\n")
    (own,) = (row for row in rows if '"derive_budgets"' in row)
    older = text.replace(f"        FunctionEntry(\n{own}", "")
    (tmp_path / "deployment.py").write_text(older)

    found = read_tables(tmp_path)

    assert [*found.functions] == [row for row in FUNCTIONS if row.name != "derive_budgets"]
    assert "derive-budgets" not in cloudbuild.text(cloudbuild.build(found, has_gate=False))


#: A table of six rows has some thousand characters, and a line of an error repeats its beginning.
LONGEST_LINE = 500
#: What somebody writes into deployment.py, in place of what, and what is said of it.
MISTAKES = {
    "no table": ("FUNCTIONS: Final", "ROWS: Final", "FUNCTIONS of deployment.py is None; allowed"),
    "a list": ("FunctionTable(\n", "list(\n", '…"; allowed: FUNCTIONS = FunctionTable([…])'),
    "a minute that no hour has": (
        "17 * * * *",
        "61 * * * *",
        "is '61 * * * *'; allowed: cron's five",
    ),
    "a word too many": (
        "FunctionTable(\n",
        "FunctionTable(]\n",
        "SyntaxError: closing",
    ),
    "what is not there": ("timedelta(minutes=3)", "minutes(3)", "NameError: name 'minutes' is not"),
    "a row of ours": ('"serve_api"', '"serve_runs"', "no row serve_api"),
    "a value": ("concurrency=40", "concurrency=0", "allowed: from 1 to 1000"),
    "queues": ("Mapping[str, int]] = {}", "Mapping[str, int]] = 5", "allowed: CONCURRENCY = {"),
    "variables": (
        "Mapping[str, str]] = {}",
        'Mapping[str, str]] = "A=1"',
        "allowed: VARIABLES =",
    ),
    "extras": ('("review",)', '"review"', """EXTRAS of deployment.py is 'review'; allowed: EXT"""),
    "a run": (
        '("review", {"folder": "pipelines/review/sample"})',
        '"review"',
        "allowed: SMOKE =",
    ),
    "an end": ("EXTRAS:", "raise SystemExit\nEXTRAS:", "SystemExit"),
    "an end without a word": (
        "EXTRAS:",
        "import os\nos._exit(0)\nEXTRAS:",
        "SystemExit: os._exit(0), at deployment.py:",
    ),
    "an error of its own kind": (
        "EXTRAS:",
        'class Odd(BaseException): ...\nraise Odd("sk-abcdefghijklmnopqrstuvwxyz012345")\nEXTRAS:',
        "'Odd: [redacted], at deployment.py:",
    ),
    "an extra": ('("review",)', '("review", 5)', 'allowed: EXTRAS = ("llm",)'),
    "a queue without a name": (
        "Mapping[str, int]] = {}",
        "Mapping[str, int]] = {5: 1}",
        "allowed: CO",
    ),
    "an input that is not JSON": ('"pipelines/review/sample"', "{1}", "allowed: SMOKE ="),
    "a number that JSON has not": ('"pipelines/review/sample"', 'float("nan")', "allowed: SMOKE ="),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_tables_is_one_line(
    mistake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, after, told = MISTAKES[mistake]
    text = (ROOT / "deployment.py").read_text()
    assert before in text
    (tmp_path / "deployment.py").write_text(text.replace(before, after))
    monkeypatch.chdir(tmp_path)

    code = deploy(["bundle"])

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert told in said
    assert len(said) < LONGEST_LINE
    assert [path.name for path in tmp_path.iterdir()] == ["deployment.py"]
