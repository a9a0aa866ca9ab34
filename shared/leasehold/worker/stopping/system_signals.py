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
import traceback
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

from leasehold.attempt.stop import StopSignal
from leasehold.bounded_calls import start_thread
from leasehold.domain.result import Stopped
from leasehold.domain.status import Termination

#: Without SIGKILL, the ways in which a process is made to end.
ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)

_Handler = Callable[[int, FrameType | None], Any]
T = TypeVar("T")


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
        """Wait, but not longer than until the process is to end; True: it is.

        Args:
            seconds: how long at most; None: until then.
        """
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
        none is set, the signal has the effect that the system gives it.
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
        return SERVER_EXIT.heard(partial(self._handler, number, frame))


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


_READ_BYTES: Final = 512
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
        numbers = os.read(self._read_end, _READ_BYTES)
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


# The exit of a server: its handler of a signal may raise it in the main thread, wherever that is.


class _Runs(Enum):
    """The code in the main thread, between whose instructions handlers of signals run."""

    NO_ATTEMPT = auto()
    OURS = auto()
    THE_PROJECTS = auto()


class ServerExit:
    """Keeps an attempt whole that the exit of its server would cut short: its lease is released.

    At SIGINT and SIGQUIT a sync worker of gunicorn leaves where it stands, and that is where it
    runs the attempt: between two writes, the lease that the first of them took would stay. Only
    code of the project is left at once; the exit waits for the end of all else. The thread that
    heard the signal asks for the stop meanwhile.
    """

    def __init__(self) -> None:
        self._runs = _Runs.NO_ATTEMPT
        self._leaving: SystemExit | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether this is the main thread, and its attempt is to end for the exit of the server."""
        is_kept = self._leaving is not None and self._runs is not _Runs.NO_ATTEMPT
        return is_kept and is_main_thread()

    def held_back(self, call: Callable[[], T]) -> T:
        """Return what a call returns; in the main thread, an exit waits until it is over."""
        if self._runs is not _Runs.NO_ATTEMPT or not is_main_thread():
            return call()
        self._leaving, self._runs = None, _Runs.OURS
        try:
            return call()
        finally:
            self._runs = _Runs.NO_ATTEMPT
            if self._leaving is not None:
                raise self._leaving

    def let_through(self, function: Callable[..., T], *given: Any) -> T:
        """Call a function of the project: one exit cuts it short, also one that waits.

        It may have attempts of its own, and threads, of which none is cut short.
        """
        if self._runs is _Runs.NO_ATTEMPT or not is_main_thread():
            return function(*given)
        before, self._runs = self._runs, _Runs.THE_PROJECTS
        try:
            if self._leaving is not None:
                raise self._leaving
            return function(*given)
        finally:
            self._runs = before

    def heard(self, handle: Callable[[], Any]) -> Any:
        """Handle a signal; an exit that this raises is kept, or cuts code of the project short.

        Another signal may come meanwhile, whose exit then cuts both short.
        """
        found = self._runs
        try:
            return handle()
        except SystemExit as leaving:
            if found is _Runs.NO_ATTEMPT:
                raise
            self._leaving, self._runs = leaving, _Runs.OURS
            if found is _Runs.THE_PROJECTS:
                raise
            return None


#: Of this process, as its handlers of signals are.
SERVER_EXIT: Final = ServerExit()


# Ctrl-C, which the system raises in the main thread alone, wherever that is.


_CTRL_C: Final = "Ctrl-C: the process was interrupted; the lease was released."
_EXIT: Final = "A signal had the process exit; the lease was released."


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
        words = _EXIT if isinstance(error, SystemExit) else _CTRL_C
        return Stopped(Termination.INSTANCE_SHUTDOWN, words)

    def raise_interrupt(self) -> None:
        """Raise what was kept in this thread, if anything was."""
        if is_main_thread() and self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt


def is_interrupt(error: BaseException) -> bool:
    """Return whether the error ends this process, raised by a handler of a signal.

    That raises where the code of the main thread stood: Ctrl-C, or an exit of the program's. A
    function of the project that exits by itself has failed.
    """
    if not is_main_thread():
        return False
    if not isinstance(error, SystemExit):
        return isinstance(error, KeyboardInterrupt)
    handlers = [_code_of(signal.getsignal(number)) for number in ENDING]
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: Any) -> CodeType | None:
    """Return the code that a handler of a signal runs first; None: it has none of Python's."""
    function = getattr(handler, "func", handler)
    method = function.__call__ if callable(function) else None
    code: CodeType | None = getattr(function, "__code__", getattr(method, "__code__", None))
    return code


def is_main_thread() -> bool:
    """Return whether this is the thread that gets the system's signals."""
    return threading.current_thread() is threading.main_thread()
