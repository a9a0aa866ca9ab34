"""Each command that a page shows is one that can be typed: its name, its options, its target."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from leasehold.cli.commands import program

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/**/*.md"),
    *ROOT.glob("shared/leasehold/cli/new-*/*.md"),
]
TARGETS = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)

_BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_IN_LINE = re.compile(r"`([^`\n]+)`")
_SETTINGS = re.compile(r"^[ $]*(?:[A-Z_]+=\S+ )*")  # a prompt, and variables before a command
_REDIRECTION = re.compile(r" \d?>>? ?\S+")

Command = tuple[str, str]  # the page, and a command that it shows


def in_blocks() -> Iterator[Command]:
    """Yield each command of each code block, whole."""
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                parts = re.split(r"[&|;]+", _REDIRECTION.sub("", line))
                yield from ((page.name, _plain(part)) for part in parts)


def in_sentences() -> Iterator[Command]:
    """Yield all code that stands in a sentence: a command may lack what it does not speak of."""
    for page in PAGES:
        text = _BLOCK.sub("", page.read_text())
        yield from ((page.name, _plain(code)) for code in _IN_LINE.findall(text))


def _plain(command: str) -> str:
    return _SETTINGS.sub("", command).strip()


def of_leasehold(commands: Iterator[Command]) -> list[Command]:
    return [(page, line) for page, line in commands if re.match(r"(\S*/)?leasehold ", line)]


def refusal(command: str) -> click.UsageError | None:
    """Return what the command line would refuse a command for, without a value of it looked up."""
    words = shlex.split(command, comments=True)[1:]
    try:
        with program.make_context("leasehold", words) as context:
            name, found, rest = program.resolve_command(context, words)
            assert found is not None
            found.make_context(name, rest, parent=context)
    except click.BadParameter as error:  # `$RUN`, or a file that the page has made before
        return error if isinstance(error, click.MissingParameter) else None
    except click.UsageError as error:
        return error
    except click.exceptions.Exit:  # --help
        return None
    return None


def test_each_command_of_a_block_is_understood() -> None:
    """Pasted, it does something: its options are there, and none is missing."""
    commands = of_leasehold(in_blocks())

    refused = [(*one, str(error)) for one in commands if (error := refusal(one[1]))]

    assert len(commands) > 100
    assert refused == []


def test_each_command_in_a_sentence_has_a_name_and_options_that_exist() -> None:
    commands = of_leasehold(in_sentences())

    unknown = [
        (*one, str(error))
        for one in commands
        if (error := refusal(one[1])) and "No such" in error.format_message()
    ]

    assert len(commands) > 200
    assert unknown == []


def test_what_make_is_told_are_targets() -> None:
    commands = [*in_blocks(), *in_sentences()]
    found = [
        (page, words[1])
        for page, line in commands
        if (words := line.split("#")[0].split())[:1] == ["make"] and len(words) > 1
    ]

    assert len(found) > 20
    assert [one for one in found if re.match(r"[a-z]", one[1]) and one[1] not in TARGETS] == []


@pytest.mark.parametrize("package", ["tools", "bench"])
def test_each_module_that_python_is_to_run_is_there(package: str) -> None:
    found = {
        (page, module)
        for page, line in [*in_blocks(), *in_sentences()]
        for module in re.findall(rf"python3? -m ({package}(?:\.\w+)*)", line)
    }

    assert found
    assert [one for one in found if importlib.util.find_spec(one[1]) is None] == []


def test_nothing_installs_leasehold_by_its_name() -> None:
    """It is on no index: another package of that name would be installed."""
    by_name = re.compile(r"pip3? install [^`\n&;|]*(?<=[ '\"])leasehold\b")
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]

    found = [(page.name, one) for page in pages for one in by_name.findall(page.read_text())]

    assert found == []


def test_each_setting_that_a_page_names_is_one() -> None:
    """A step has two of its own, named after it; the tests, the demo and the build have some."""
    elsewhere = "".join(
        path.read_text()
        for folder in ("tests", "tools", "pipelines", "shared/leasehold")
        for path in (ROOT / folder).rglob("*.py")
    )
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"`((?:LEASEHOLD|PIPELINE)_[A-Z_]+)\b", page.read_text())
    }

    unknown = [
        one
        for one in named
        if one[1] not in elsewhere and not re.search(r"_(TIMEOUT_MS|DEADLINE_S)$", one[1])
    ]

    assert len(named) > 100
    assert unknown == []
