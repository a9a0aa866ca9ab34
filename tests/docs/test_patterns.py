"""The code of each page about a pattern runs unchanged, with the commands that stand on it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from tests.cli.shell import Shell

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
