"""The three streams of a command, whatever its caller left of them."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, Final, TextIO

import click

_CLOSED: Final = (
    "stdout is closed, and the answer goes there; allowed: an open one, or > /dev/null for none."
)


class UnwrittenAnswerError(OSError):
    """The command is done, and its answer could not be written."""


class _AnswerFile(io.FileIO):
    """Stdout, with its own errors: those of other files are other ones."""

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
    """Write what is left, if it can be written; that no one reads it is no failure."""
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
