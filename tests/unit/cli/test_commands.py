"""A command is imported when it is called, and no garbage is looked for meanwhile."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from leasehold.cli.commands import CommandRow, LazyCommands

MODULE = """
import gc
import click

was_looked_for = gc.isenabled() and gc.get_threshold()[0] > 0


@click.command()
def look():
    pass
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LazyCommands]:
    """Commands of a package with a module that is imported, and one that fails."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_commands").mkdir()
    (tmp_path / "own_commands/look.py").write_text(MODULE)
    (tmp_path / "own_commands/broken.py").write_text("1 / 0\n")
    rows = {name: CommandRow(name, "Look.") for name in ("look", "broken")}
    yield LazyCommands(rows=rows, package="own_commands")
    for name in [name for name in sys.modules if name.startswith("own_commands")]:
        del sys.modules[name]


def test_no_garbage_is_looked_for_while_a_command_is_imported(commands: LazyCommands) -> None:
    """A fifth of the time of a short command went into that."""
    context = click.Context(commands)

    found = commands.get_command(context, "look")

    assert found is commands.get_command(context, "look")
    assert not sys.modules["own_commands.look"].was_looked_for
    assert gc.get_threshold()[0] > 0


def test_garbage_is_looked_for_again_behind_an_import_that_fails(commands: LazyCommands) -> None:
    with pytest.raises(ZeroDivisionError):
        commands.get_command(click.Context(commands), "broken")

    assert gc.get_threshold()[0] > 0
