"""Notes of signals that came: written where little may be done, read by a thread that may do all.

A handler of Python runs in the main thread, between two of its instructions: not at all while
that thread is inside a call of C, as a handler of a step may be for minutes in a sync worker. So
the interpreter's own C code is asked to write each signal down as well (`set_wakeup_fd`). A
server may have asked for that before: what was meant for it is passed on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Final

_MANY: Final = 512
_NOBODY: Final = -1

#: What `put` writes; it is the number of no signal.
NOTED: Final = 0


class SignalNotes:
    """A pipe of signal numbers. A forked process has its own, and nothing in it."""

    def __init__(self) -> None:
        self._read_end, self._write_end = _pipe()
        self._wakes = False
        self._relay = _NOBODY
        self._is_put = False
        os.register_at_fork(after_in_child=self._begin_anew)

    def put(self) -> None:
        """Note, once, that one came which a handler was wrapped for; safe in a handler.

        A handler must take no lock that it may interrupt, and be short: where signals come fast
        it is interrupted by the next, and that by the one after it.
        """
        if self._is_put:
            return
        self._is_put = True
        with contextlib.suppress(BlockingIOError):  # nobody reads here, as in a server's master
            os.write(self._write_end, bytes([NOTED]))

    def get(self) -> bytes:
        """Wait for notes, pass them on to whom they were for before, and return the numbers."""
        numbers = os.read(self._read_end, _MANY)
        if self._relay != _NOBODY:
            with contextlib.suppress(OSError):  # it is full, or gone
                os.write(self._relay, numbers.replace(bytes([NOTED]), b""))
        return numbers

    def take_wakeups(self) -> None:
        """Have the interpreter note each signal here, at once.

        Where this is not the main thread, which alone may ask for it, nothing changes.
        """
        with contextlib.suppress(ValueError):
            before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
            self._wakes = True
            if before != self._write_end:
                self._relay = before

    def _begin_anew(self) -> None:
        """Leave the pipe to the process that this one was forked from."""
        ends = self._read_end, self._write_end
        self._read_end, self._write_end = _pipe()
        self._relay, self._is_put = _NOBODY, False
        if self._wakes:
            signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for end in ends:
            os.close(end)


def _pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    return read_end, write_end
