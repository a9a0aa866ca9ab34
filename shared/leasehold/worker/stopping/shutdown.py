"""The shutdown of a process: SIGTERM is noticed at once, even if other code sets a handler for it.

A server replaces the handler that a module sets when it is imported, and a request in a thread
may set none. So the signal is noted in two ways beside the server's own handler: the interpreter
writes it down the moment it comes, even while the main thread is inside a call of C; and `listen`
wraps `signal.signal`, so that whatever handler is set later notes it first, which works where an
event loop has taken the interpreter's notes for itself. A thread reads the notes and does the
rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from leasehold.attempt.stop import StopSignal
from leasehold.bounded_calls import start_thread
from leasehold.domain.result import Stopped
from leasehold.domain.status import Termination

#: Without SIGKILL, the ways in which a process is made to end.
ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)

_Handler = Callable[[int, FrameType | None], Any]


class ShutdownCoordinator:
    """Knows that this process is to end, wakes waiting threads, and asks for nothing twice."""

    def __init__(self) -> None:
        self._stop = StopSignal()
        self._notes = SignalNotes()
        self._wanted: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        self._listens = False
        self._installed: dict[signal.Signals, Any] = {}
        self._before: dict[signal.Signals, Any] = {}
        self._watcher: threading.Thread | None = None

    @property
    def shutdown_requested(self) -> bool:
        """Whether the process is to end."""
        return self._stop.is_requested

    @property
    def is_watching(self) -> bool:
        """Whether a thread of this process hears the notes."""
        return self._watcher is not None and self._watcher.is_alive()

    def request(self) -> None:
        """Ask for the shutdown; from any thread, not from a handler of a system signal.

        Callbacks that no thread can be had for are called in this one: there is no time to wait.
        """
        self._stop.request(Termination.INSTANCE_SHUTDOWN)
        self._stop.call_waiting(here=True)

    def wait_or_shutdown(self, seconds: float | None = None) -> bool:
        """Wait, but not longer than until the process is to end; True: it is."""
        return self._stop.wait(seconds)

    async def await_or_shutdown(self, seconds: float | None = None) -> bool:
        """Wait as `wait_or_shutdown` does, in a coroutine."""
        return await self._stop.wait_async(seconds)

    def on_stop(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called, in its own thread, when the process is to end.

        Returns:
            What ends that.
        """
        return self._stop.on_stop(callback)

    def listen(self, *signals: signal.Signals) -> None:
        """Hear these signals (SIGTERM), beside the handlers that others set from now on.

        For processes whose server handles signals: call it before the server sets its handlers,
        and `watch` in the process that is to hear them. The handlers work as before. Where
        where none is set, the signal has the effect that the system gives it.
        """
        with self._lock:
            if self._listens:
                return
            self._listens = True
        self._wanted |= frozenset(signals or (signal.SIGTERM,))
        set_handler = signal.signal

        def set_noting_handler(signalnum: int, handler: Any) -> Any:
            if signalnum in self._wanted and callable(handler) and not self._is_noting(handler):
                handler = _Noting(handler, self._notes)
            return set_handler(signalnum, handler)

        signal.signal = set_noting_handler
        self._notes.take_wakeups()

    def install(self, *signals: signal.Signals) -> None:
        """Handle these signals (SIGTERM and SIGINT) in this process, which has no other server.

        Where an asyncio loop runs in the main thread, it is the loop that handles them. A handler
        that was there before is called as well.
        """
        for number in signals or (signal.SIGTERM, signal.SIGINT):
            found = signal.getsignal(number)
            if found is not self._installed.get(number):  # once more keeps what was there at first
                is_kept = callable(found) and not _interrupts(found)
                self._before[number] = found if is_kept else None
            self._install(number, self._before[number])
            self._installed[number] = signal.getsignal(number)
            self._wanted |= {number}
        self._notes.take_wakeups()
        self.watch()

    def watch(self) -> None:
        """Start the thread that hears the notes; in each process, after it was forked.

        Where the system has no thread, `is_watching` says so: call it again.

        Called in the main thread, it takes the interpreter's notes from a server that took them
        since `listen`; not from a loop, which needs them to be woken. Any other thread cannot,
        and need not: then the main thread is not kept busy by handlers of steps, and hears by
        itself.
        """
        if self._listens and not _has_loop():
            self._notes.take_wakeups()
        with self._lock:
            if not self.is_watching:
                self._watcher = start_thread(self._hear, "shutdown")

    def _install(self, number: signal.Signals, before: Any) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            signal.signal(number, _Noting(before or _nothing, self._notes))
            return

        def from_loop() -> None:
            self.request()
            if before is not None:
                before(number, None)

        loop.add_signal_handler(number, from_loop)

    def _is_noting(self, handler: Any) -> bool:
        return isinstance(handler, _Noting) and handler.notes is self._notes

    def _hear(self) -> None:
        while True:  # others may wait for the notes as well
            if {*self._wanted, NOTED}.intersection(self._notes.get()):
                self.request()


class _Noting:
    """A handler that notes the signal and then does what it always did."""

    def __init__(self, handler: _Handler, notes: SignalNotes) -> None:
        self._handler = handler
        self.notes = notes

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        """Handle the signal."""
        self.notes.put()
        return self._handler(number, frame)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _interrupts(handler: Any) -> bool:
    """Return whether it is Python's own handler of SIGINT, or that of `asyncio.run`."""
    method = getattr(handler, "func", handler)
    of_run = isinstance(getattr(method, "__self__", None), asyncio.Runner)
    return of_run or method is signal.default_int_handler


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Do no more than note."""


# Notes of signals that came: written where little may be done, read by a thread that may do all.
#
# A handler of Python runs in the main thread, between two of its instructions: not at all while
# that thread is inside a call of C, as a handler of a step may be for minutes in a sync worker.
# So the interpreter's own C code is asked to write each signal down as well (`set_wakeup_fd`). A
# server may have asked for that before: what was meant for it is passed on.


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
        with contextlib.suppress(BlockingIOError):  # nothing reads here, as in a server's master
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


# Ctrl-C, which the system raises in the main thread alone, wherever that is.


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
