"""Ctrl-C and SIGTERM of a command that serves: once to stop in order, twice to stop at once.

Service managers, and wrappers that pass signals on, send SIGTERM twice within moments: that is
once. Two Ctrl-C are two, however quickly a person presses them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

#: A signal wakes the waiting thread; it looks as often as that besides.
_SIGNAL_POLL_S: Final = 1.0
_READ_BYTES: Final = 512

#: What follows the first signal within this time is the same one.
SAME_SIGNAL_S: Final = 1.0


class SignalCount:
    """Counts the signals that ask for an end, each once."""

    def __init__(self) -> None:
        self._began = 0.0  # by the monotonic time
        self._first: int | None = None
        self._count = 0

    def add(self, number: int, now: float) -> int:
        """Count a signal; return how many there were so far, 0 for the first one once more.

        Args:
            number: which signal.
            now: when it was heard, by the monotonic time, in seconds.
        """
        is_one = self._first is not None and now - self._began < SAME_SIGNAL_S
        if is_one and signal.SIGTERM in (number, self._first):
            return 0
        if self._first is None:
            self._first, self._began = number, now
        self._count += 1
        return self._count


class StopSignals:
    """Hears SIGINT and SIGTERM from now on; made in the main thread.

    Until the command says that it is ready, the first one raises KeyboardInterrupt in whatever the
    start waits for.

    Args:
        at_once: called with the second one, inside its handler.
    """

    def __init__(self, at_once: Callable[[], object] = lambda: None) -> None:
        self._at_once = at_once
        self._count = SignalCount()
        self._is_at_once = False
        self._is_ready = False
        # the system may give a signal to any thread, which wakes no other one, and so not the main
        # thread that is to handle it; what Python writes here for each signal does
        self._woken_by, wakes = os.pipe()
        for end in (self._woken_by, wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        #: What the first one is called; None: none came.
        self.name: str | None = None
        #: Whether a start was cut short. What was imported then may have made another error of it.
        self.cut_start = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    @property
    def is_at_once(self) -> bool:
        """Whether a second one came."""
        return self._is_at_once

    def ready(self) -> None:
        """Raise no more: from here on, or in what ends a start."""
        self._is_ready = True

    def wait(self) -> None:
        """Wait for the first one; in the main thread."""
        while self.name is None:
            select.select([self._woken_by], [], [], _SIGNAL_POLL_S)
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken_by, _READ_BYTES)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        count = self._count.add(number, time.monotonic())
        if count > 1:
            self._is_at_once = True
            self._at_once()
        if count != 1:
            return
        self.name = signal.Signals(number).name
        if not self._is_ready:
            self.cut_start = True
            raise KeyboardInterrupt


# How a command ends that stopped handlers: what they left behind delays the end only briefly.
#
# In the end, Python waits for the threads of pools, the processes of `multiprocessing`, and
# whatever else was registered for it, however long that takes. Handlers had their time before,
# and their leases are given back.


#: What is registered for the end may take as long: libraries send the last of their logs there.
MAX_LEAVE_S: Final = 1.0


def leave(exit_code: int) -> NoReturn:
    """End this process within `MAX_LEAVE_S`, or at once at a further Ctrl-C or SIGTERM.

    Processes that `multiprocessing` knows are terminated: another attempt does their work.
    """

    def now(_number: int = 0, _frame: FrameType | None = None) -> NoReturn:
        os._exit(exit_code)

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone
            stream.flush()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, now)
    signal.setitimer(signal.ITIMER_REAL, MAX_LEAVE_S)
    library = sys.modules.get("multiprocessing")  # loaded, where there are any
    for process in library.active_children() if library else ():
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
            process.terminate()
    atexit._run_exitfuncs()  # noqa: SLF001 - `sys.exit` would wait for threads first
    now()
