"""Ctrl-C and SIGTERM: the command ends, and says what that means for the run."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

from leasehold.cli.stderr import say

INTERRUPTED: Final = 130
TERMINATED: Final = 143


class InterruptedRunError(Exception):
    """Somebody stopped the command while it waited for a run; what that means was said."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came: the command ends as at Ctrl-C."""


@contextlib.contextmanager
def telling_interrupts(meaning: str, command: str) -> Iterator[None]:
    """Say what an interrupt inside means for the run, and which command is next."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        say(f"interrupted: {meaning}", command)
        raise InterruptedRunError(code_of_interrupt(interrupt)) from None


def end_as_interrupted_on_sigterm() -> None:
    """Let SIGTERM end the command in order, as Ctrl-C does."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TerminatedError

    signal.signal(signal.SIGTERM, end)


def code_of_interrupt(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code that shells expect of the signal."""
    return TERMINATED if isinstance(interrupt, TerminatedError) else INTERRUPTED
