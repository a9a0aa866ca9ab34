"""The code of each page about a pattern runs unchanged, with the commands that stand on it."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.worlds.shell import Shell

PAGES = Path(__file__).parents[2] / "docs/patterns"
_BLOCK = r"^```{}\n(.*?)^```$"


def project(page: str, folder: Path, number: int = 0) -> tuple[Shell, list[str]]:
    """Write a module of a page into a folder; return a shell there, and its commands."""
    text = (PAGES / page).read_text()
    source = re.findall(_BLOCK.format("python"), text, re.MULTILINE | re.DOTALL)[number]
    name = source.splitlines()[0].removeprefix("# ")
    (folder / name).write_text(source)
    lines = re.findall(_BLOCK.format("sh"), text, re.MULTILINE | re.DOTALL)[number]
    setting, *commands = lines.splitlines()
    assert setting == f"export LEASEHOLD_CATALOG={name.removesuffix('.py')}"
    return Shell(folder, {"LEASEHOLD_CATALOG": name.removesuffix(".py")}), commands


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_each_page_says_when_how_what_a_kill_does_what_it_costs_and_its_limits(page: Path) -> None:
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)

    wanted = ["When", "How", "What a kill does", "What it costs", "Limits"]
    assert headings[:2] == wanted[:2]
    assert [heading for heading in headings if heading in wanted] == wanted


def test_the_letter_is_shortened_at_two_places(tmp_path: Path) -> None:
    shell, commands = project("names-and-choices.md", tmp_path)

    done = [shell.run(*shlex.split(line)[1:]) for line in commands]

    assert [one.returncode for one in done] == [0, 0], done[-1].stderr
    run_id = re.findall(r"r-\w+", done[1].stdout)[0]
    assert json.loads(shell.run("output", run_id).stdout) == ["one two three", "one two"]
    assert shell.run("output", run_id, "first-cut").stdout == '"one two three"\n'


def test_a_short_text_is_published_as_it_is(tmp_path: Path) -> None:
    shell, commands = project("names-and-choices.md", tmp_path, 1)

    done = [shell.run(*shlex.split(line)[1:]) for line in commands]
    run_id = re.findall(r"r-\w+", done[1].stdout)[0]
    shown = [row.split() for row in shell.run("show", run_id).stdout.splitlines()]
    traced = shell.run("trace", run_id).stdout

    assert [one.returncode for one in done] == [0, 0], done[-1].stderr
    assert shell.run("output", run_id).stdout == '"Rain again."\n'
    assert ["shorten", "SKIPPED", "by", "step", "triage"] in shown
    assert "step triage skipped to publish" in traced


def test_the_text_is_published_once_it_is_approved(tmp_path: Path) -> None:
    shell, commands = project("wait.md", tmp_path)

    done = [shell.run(*shlex.split(line)[1:]) for line in commands]

    assert [one.returncode for one in done] == [0, 1, 0, 0], done[-1].stderr
    run_id = shlex.split(commands[2])[2]
    assert f"leasehold signal {run_id} approval --json VALUE" in done[1].stderr
    assert shell.run("output", run_id).stdout == '"All about leases. Approved by ada."\n'


def test_the_question_is_asked_under_its_limits(tmp_path: Path) -> None:
    shell, commands = project("limit.md", tmp_path)

    done = [shell.run(*shlex.split(line)[1:]) for line in commands]

    assert [one.returncode for one in done] == [0, 0], done[-1].stderr
    run_id = re.findall(r"r-\w+", done[1].stdout)[0]
    shown = json.loads(shell.run("show", run_id, "--json").stdout)
    assert (shown["priority"], shown["steps"]["ask"]["output"]) == ("high", '"WHY?"')


def test_the_test_on_the_page_of_limits_passes(tmp_path: Path) -> None:
    text = (PAGES / "limit.md").read_text()
    source = re.findall(_BLOCK.format("python"), text, re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "test_calls.py").write_text(source)

    done = runpy.run_path(str(tmp_path / "test_calls.py"))

    tests = [value for name, value in done.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_a_limit_with_a_field_that_the_step_is_not_given_is_found_before_a_run(
    tmp_path: Path,
) -> None:
    shell, _ = project("limit.md", tmp_path)
    source = (tmp_path / "calls.py").read_text()
    typed = source.replace("dict[str, str]", "Question").replace('given["question"]', "given.text")
    model = "from pydantic import BaseModel\n\n\nclass Question(BaseModel):\n    text: str\n"
    (tmp_path / "calls.py").write_text(typed.replace("\n\ndef", f"\n{model}\n\ndef", 1))

    checked = shell.run("check")
    started = shell.run("start", "ask", "--input", '{"text": "why?"}', "--in-process")

    problem = "names the field 'model', which Question does not have; it has text."
    assert (checked.returncode, started.returncode) == (1, 2)
    assert problem in checked.stdout
    assert problem in started.stderr
    plain = source.replace("dict[str, str]", "str").replace('given["question"]', "given")
    (tmp_path / "calls.py").write_text(plain)
    assert "'model', which str does not have; it has no fields." in shell.run("check").stdout


@pytest.mark.parametrize(
    ("page", "output"),
    [
        ("each.md", "one: 2; three: 3; page 1 failed: empty_page"),
        ("parallel.md", "good"),
        ("child.md", "It costs 12."),
    ],
)
def test_small_runs_do_what_the_pages_say(page: str, output: str, tmp_path: Path) -> None:
    shell, commands = project(page, tmp_path)

    done = [shell.run(*shlex.split(line)[1:]) for line in commands]

    assert [one.returncode for one in done] == [0, 0], done[-1].stderr
    run_id = re.findall(r"r-\w+", done[1].stdout)[0]
    assert json.loads(shell.run("output", run_id).stdout) == output


def test_a_schedule_is_listed_triggered_paused_and_filled_back(tmp_path: Path) -> None:
    shell, commands = project("schedule.md", tmp_path)

    done = [shell.run(*shlex.split(line)[1:]) for line in commands]

    assert [one.returncode for one in done] == [0] * 7, [one.stderr for one in done]
    assert "nightly\tactive\tdigest\t0 6 * * *\tEurope/Zurich\t" in done[1].stdout
    lines = done[-1].stdout
    assert lines.count("\tstarted\t") == 3
    assert "2026-01-01T05:00:00Z\tstarted\t" in lines
    assert "triggered by " in lines
    assert len(shell.json("runs", "--label", "schedule:nightly")["runs"]) == 3


def test_a_test_moves_the_clock_to_the_time_of_a_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project("schedule.md", tmp_path)
    text = (PAGES / "schedule.md").read_text()
    source = re.findall(_BLOCK.format("python"), text, re.MULTILINE | re.DOTALL)[1]
    monkeypatch.syspath_prepend(str(tmp_path))

    exec(compile(source, "schedule.md", "exec"), {})  # noqa: S102 - the code of our own page
