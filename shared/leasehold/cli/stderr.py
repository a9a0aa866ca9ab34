"""What a command says beside its answer, on stderr: one line each."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Final

import click

from leasehold.cli.streams import forget_stderr
from leasehold.domain.printable import printable
from leasehold.presentation.formatting import one_line

#: Whoever waits longer than this is told for what.
_PATIENCE_S: Final = 1.0


def note(line: str, command: str = "") -> None:
    """Print something worth knowing, and a command to copy as it is."""
    _print(f"{one_line(line)} {printable(command)}".rstrip())


@contextlib.contextmanager
def noted_if_slow(line: str) -> Iterator[None]:
    """Print what is done meanwhile, if it takes longer than people wait without asking."""
    timer = threading.Timer(_PATIENCE_S, note, [line])
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError:  # the system has no thread for it: it is done all the same
        timer.cancel()
    try:
        yield
    finally:
        timer.cancel()


def warn(line: str) -> None:
    """Print what is set but does not hold."""
    _print(click.style(one_line(f"warning: {line}"), fg="yellow"))


def print_error(line: str) -> None:
    """Print why the command did not do what it was to do."""
    _print(click.style(one_line(f"error: {line}"), fg="red"))


def note_block(lines: Iterable[str]) -> None:
    """Print lines that are safe for a terminal as they are, with their indents."""
    for line in lines:
        _print(line)


def _print(line: str) -> None:
    """Print the line; where it cannot be written, the command goes on all the same."""
    try:
        click.echo(line, err=True)
    except OSError:  # no one reads it, or the disk behind it is full
        forget_stderr()
