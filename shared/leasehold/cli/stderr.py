"""What is said beside the answer, on stderr: one line each."""

from __future__ import annotations

import click

from leasehold.cli.formatting import one_line
from leasehold.cli.streams import forget_stderr
from leasehold.domain.printable import printable


def say(line: str, command: str = "") -> None:
    """Tell a person something they may want to know, and a command to copy as it is."""
    _say(f"{one_line(line)} {printable(command)}".rstrip())


def warn(line: str) -> None:
    """Tell of something that was asked for and does not hold."""
    _say(click.style(one_line(f"warning: {line}"), fg="yellow"))


def say_error(line: str) -> None:
    """Tell why the command did not do what it was asked for."""
    _say(click.style(one_line(f"error: {line}"), fg="red"))


def _say(line: str) -> None:
    """Write the line; where nobody can be told anything, the command goes on all the same."""
    try:
        click.echo(line, err=True)
    except OSError:  # nobody reads it, or the disk behind it is full
        forget_stderr()
