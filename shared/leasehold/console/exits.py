"""How a command ends: its exit code, and the one line that says why it failed.

0 done; 1 the run ended otherwise than completed; 2 wrong usage or bad input; 70 a mistake in
Leasehold or in a catalog; 130 interrupted; 141 nobody reads the answer any more; 143 terminated.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final

import click

from leasehold.console.says import say_error
from leasehold.errors import LeaseholdError

DONE: Final = 0
NOT_COMPLETED: Final = 1
BAD_INPUT: Final = 2
UNEXPECTED: Final = 70
INTERRUPTED: Final = 130
NO_READER: Final = 141
TERMINATED: Final = 143


class InterruptedRunError(Exception):
    """Somebody stopped the command while it waited for a run; what that means was said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came: the command ends as at Ctrl-C."""


def exit_code_of(command: Callable[[], int]) -> int:
    """Run the command; whatever it raises is one line on stderr and an exit code."""
    try:
        code = command()
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except InterruptedRunError as interrupted:
        return interrupted.code
    except BrokenPipeError:
        _forget_stdout()
        return NO_READER
    except KeyboardInterrupt as interrupt:
        say_error("interrupted.")
        return code_of_interrupt(interrupt)
    except (click.ClickException, LeaseholdError) as error:
        _trace_if_asked()
        say_error(_sentence(error))
        return BAD_INPUT
    except Exception as error:  # noqa: BLE001 - the last place that can say it in one line
        _trace_if_asked()
        hint = "LEASEHOLD_DEBUG=1 shows the traceback"
        say_error(f"unexpected {type(error).__name__}: {error} ({hint})")
        return UNEXPECTED
    return code


def end_as_interrupted_on_sigterm() -> None:
    """Let SIGTERM end the command in order, as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TerminatedError

    signal.signal(signal.SIGTERM, end)


def code_of_interrupt(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code that shells expect of the signal."""
    return TERMINATED if isinstance(interrupt, TerminatedError) else INTERRUPTED


def _sentence(error: click.ClickException | LeaseholdError) -> str:
    if isinstance(error, LeaseholdError):
        return error.message
    sentence = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{sentence} See `{error.ctx.command_path} --help`."
    return sentence


def _trace_if_asked() -> None:
    if os.environ.get("LEASEHOLD_DEBUG", "") not in ("", "0"):
        traceback.print_exc()


def _forget_stdout() -> None:
    """Keep the interpreter from flushing into the closed pipe once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
