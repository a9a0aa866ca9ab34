"""The options of commands: what they read, and what they refuse."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from leasehold.cli.options import InputType, budget_option


class Endless(io.BytesIO):
    """A file that gives as much as it is asked for."""

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert size >= 0, "to read all of it would fill the memory"
        return bytes(size)


def test_an_input_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Endless()))

    with pytest.raises(click.BadParameter, match="it is larger than 64 MiB"):
        InputType().convert("@-", None, None)


def test_a_budget_that_is_given_twice_is_refused() -> None:
    """The command takes neither: one of the two was meant."""

    @click.command()
    @budget_option
    def command(budget: object) -> None:
        click.echo(repr(budget))

    twice = CliRunner().invoke(command, ["--budget", "usd=5", "--budget", "usd=9"])
    both = CliRunner().invoke(command, ["--budget", "usd=5", "--budget", "tokens=9"])

    assert (twice.exit_code, "each kind once" in twice.output) == (2, True)
    assert both.output == "Budget(usd=5.0, tokens=9)\n"
