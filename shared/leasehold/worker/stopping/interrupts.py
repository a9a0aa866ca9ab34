"""Ctrl-C, which the system raises in the main thread alone, wherever that is."""

from __future__ import annotations

import threading
from typing import Final

from leasehold.domain.result import Stopped
from leasehold.domain.status import Termination

_CTRL_C: Final = "Ctrl-C: the process was interrupted; the lease was released."


class Interrupts:
    """Keeps the interrupt that cut an attempt short, until the attempt is released."""

    def __init__(self) -> None:
        self._interrupt: BaseException | None = None  # of the main thread

    def stopped_by(self, error: BaseException, reason: Termination | None = None) -> Stopped:
        """Keep the interrupt, and return how the attempt ends.

        Args:
            error: the interrupt.
            reason: why the attempt was to stop already, if it was.
        """
        self._interrupt = error
        if reason is not None:
            return Stopped(reason)
        return Stopped(Termination.INSTANCE_SHUTDOWN, _CTRL_C)

    def raise_interrupt(self) -> None:
        """Raise what was kept in this thread, if anything was."""
        if is_main_thread() and self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether the error is an interrupt of this process, raised where its code stood."""
    return isinstance(error, KeyboardInterrupt) and is_main_thread()


def is_main_thread() -> bool:
    """Return whether this is the thread that gets the system's signals."""
    return threading.current_thread() is threading.main_thread()
