"""How a command ends: its exit code, and the one line that says why it failed.

0 done; 1 the run ended otherwise than completed, its state forbids the operation, or an audit
found something; 2 wrong usage or bad input; 70 a mistake in Leasehold or in a catalog; 74 it is
done, but its answer could not be written; 130 interrupted; 141 the reader of the answer is gone;
143 terminated.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import click

from leasehold.cli.stop_signals import SignalCount
from leasehold.cli.streams import UnwrittenAnswerError, forget_stdout, note, print_error
from leasehold.domain.printable import printable
from leasehold.errors import (
    CatalogMisfitError,
    DeliveryClaimedError,
    InvalidRequestError,
    LeaseholdError,
    NotAllowedError,
    RunNotCompletedError,
    RunUnfinishedError,
    ServerRefusedError,
    StateChangedError,
    StepNotCompletedError,
)

DONE: Final = 0
NOT_COMPLETED: Final = 1
NOT_ALLOWED: Final = 1
FOUND: Final = 1
BAD_INPUT: Final = 2
UNEXPECTED: Final = 70
UNWRITTEN: Final = 74
INTERRUPTED: Final = 130
NO_READER: Final = 141
TERMINATED: Final = 143

_CAPITAL: Final = re.compile("[A-Z]")
_BY_STATE: Final = (
    CatalogMisfitError,
    DeliveryClaimedError,
    NotAllowedError,
    RunNotCompletedError,
    RunUnfinishedError,
    StateChangedError,
    StepNotCompletedError,
)


class InterruptedRunError(Exception):
    """A signal ended the command while it waited for a run; what that means was printed."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came: the command ends as at Ctrl-C."""


def exit_code_of(command: Callable[[], int], *, as_json: bool = False) -> int:
    """Run the command; whatever it raises becomes one line on stderr and an exit code.

    Args:
        command: what is run.
        as_json: answer an error with JSON on stdout as well, as a server does.
    """
    try:
        code = command()
        sys.stdout.flush()
    except (click.exceptions.Exit, InterruptedRunError) as end:
        return end.exit_code
    except BrokenPipeError:
        forget_stdout()
        return NO_READER
    except UnwrittenAnswerError as error:
        forget_stdout()
        print_error(
            f"the command has finished, but its output cannot be written: {error.strerror}."
        )
        return UNWRITTEN
    except KeyboardInterrupt as interrupt:
        print_error("interrupted.")
        return _code_of_interrupt(interrupt)
    except Exception as error:  # noqa: BLE001 - the last place that can say it in one line
        if isinstance(error, FileNotFoundError) and _is_folder_gone():
            error = click.ClickException(_FOLDER_GONE)
        return _code_of_error(error, as_json=as_json)
    return code


_FOLDER_GONE: Final = "the folder that this command works in was deleted: go to another one"


def _is_folder_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


@contextlib.contextmanager
def explain_interrupt(meaning: str, command: str) -> Iterator[None]:
    """At an interrupt inside, print what it means for the run, and which command is next."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        note(f"interrupted: {meaning}", command)
        raise InterruptedRunError(_code_of_interrupt(interrupt)) from None


def end_on_sigterm() -> None:
    """Let SIGTERM end the command in order, as Ctrl-C does; within a second it is only one."""
    count = SignalCount()

    def end(number: int, _frame: FrameType | None) -> None:
        if count.add(number, time.monotonic()):
            raise TerminatedError

    signal.signal(signal.SIGTERM, end)


def _code_of_interrupt(interrupt: KeyboardInterrupt) -> int:
    return TERMINATED if isinstance(interrupt, TerminatedError) else INTERRUPTED


def _code_of_error(error: Exception, *, as_json: bool) -> int:
    if os.environ.get("LEASEHOLD_DEBUG", "") not in ("", "0"):
        for lines in traceback.format_exception(error):
            click.echo("\n".join(map(printable, lines.split("\n"))), err=True, nl=False)
    sentence = _sentence(error)
    if as_json:
        from leasehold.cli.stdout import answer_with_error  # noqa: PLC0415 - for errors alone

        answer_with_error(error, sentence)
    print_error(_by_option(error, sentence))
    if isinstance(error, click.ClickException | LeaseholdError):
        return NOT_ALLOWED if _is_refused_by_state(error) else BAD_INPUT
    return UNEXPECTED


def _is_refused_by_state(error: Exception) -> bool:
    """Return whether the state of a run forbids it, as found here or by a server."""
    refused = isinstance(error, ServerRefusedError) and error.details.get("code")
    return isinstance(error, _BY_STATE) or refused in {kind.code for kind in _BY_STATE}


def _sentence(error: Exception) -> str:
    if isinstance(error, LeaseholdError):
        return error.message
    if not isinstance(error, click.ClickException):
        hint = "LEASEHOLD_DEBUG=1 shows the traceback"
        return f"unexpected {type(error).__name__}: {error} ({hint})"
    sentence = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        if sentence[-1:] == ")":  # click ends some of its sentences so
            sentence += "."
        return f"{sentence} See `{error.ctx.command_path} --help`."
    return sentence


def _by_option(error: Exception, sentence: str) -> str:
    """Return the sentence with the option that gave a refused field, in place of the field."""
    if not isinstance(error, InvalidRequestError):
        return sentence
    field = str(error.details.get("field"))
    option = f"--{_CAPITAL.sub(lambda found: f'-{found[0].lower()}', field)}"
    given = {word.partition("=")[0] for word in sys.argv[1:]}
    for name in (option, option.removesuffix("s")):  # an option that may be repeated is one value
        if name in given and sentence.startswith(f"{field} is "):
            return f"{name}{sentence.removeprefix(field)}"
    return sentence
