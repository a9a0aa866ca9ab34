"""What is said beside the answer, on stderr: one line each."""

from __future__ import annotations

import click

from leasehold.console.words import one_line


def say(line: str, command: str = "") -> None:
    """Tell a person something they may want to know, and a command to copy as it is."""
    click.echo(f"{one_line(line)} {command}".rstrip(), err=True)


def warn(line: str) -> None:
    """Tell of something that was asked for and does not hold."""
    click.secho(one_line(f"warning: {line}"), err=True, fg="yellow")


def say_error(line: str) -> None:
    """Tell why the command did not do what it was asked for."""
    click.secho(one_line(f"error: {line}"), err=True, fg="red")
