"""The three streams of a command, whatever its caller left of them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final, TextIO

import click

from leasehold.domain.printable import one_line, printable

_CLOSED: Final = (
    "stdout is closed, and the answer goes there; allowed: an open one, or > /dev/null for none."
)


class UnwrittenAnswerError(OSError):
    """The command is done, and its answer could not be written."""


class _AnswerFile(io.FileIO):
    """Stdout, whose errors have their own class: an error of another file is not one of stdout."""

    def write(self, data: Any) -> int:
        """Write what the system takes of it."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UnwrittenAnswerError(error.errno, error.strerror) from error


def open_streams() -> None:
    """Fill in what is closed, and have stdout and stderr take any text.

    A file opened later would get the number of a closed stream, and what is printed.

    Raises:
        ClickException: stdout is closed: nothing was done.
    """
    _fill(0, "stdin", "r")
    _fill(2, "stderr", "w")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")  # a terminal without emoji gets question marks
    if sys.stdout is None:
        raise click.ClickException(_CLOSED)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_AnswerFile(1, "w", closefd=False)),
            encoding=sys.stdout.encoding,
            errors="replace",
            line_buffering=sys.stdout.isatty(),
        )


def can_draw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def forget_stdout() -> None:
    """Keep the interpreter from writing once more, when it ends, what cannot be written."""
    _to_nowhere(1)


def flush_stderr() -> None:
    """Write what is left, if it can be written; a reader that is gone is not an error."""
    try:
        sys.stderr.flush()
    except OSError:
        forget_stderr()


def forget_stderr() -> None:
    """Do for stderr what `forget_stdout` does."""
    _to_nowhere(2)


def check_arguments(arguments: list[str]) -> None:
    """Refuse arguments that are not text, as file names of another encoding are.

    Raises:
        UsageError: one is not; nothing was done.
    """
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            encoding = sys.getfilesystemencoding().upper()
            raise click.UsageError(f"{argument!r} is not text; allowed: {encoding}.") from None


def _fill(number: int, name: str, mode: str) -> None:
    if getattr(sys, name) is None:
        _to_nowhere(number)
        setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _to_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


# What a command says beside its answer, on stderr: one line each.


#: After this time a waiting person sees the reason.
_SILENT_WAIT_S: Final = 1.0


def note(line: str, command: str = "") -> None:
    """Print something worth knowing, and a command to copy as it is."""
    _print(f"{one_line(line)} {printable(command)}".rstrip())


@contextlib.contextmanager
def noted_if_slow(line: str) -> Iterator[None]:
    """Print what is done meanwhile, if it takes longer than people wait without asking."""
    timer = threading.Timer(_SILENT_WAIT_S, note, [line])
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
    except OSError:  # its reader is gone, or the disk behind it is full
        forget_stderr()
