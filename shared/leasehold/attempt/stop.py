"""A stop signal: given once, heard by threads, coroutines and callbacks, however they wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from leasehold.bounded_calls import start_thread
from leasehold.domain.status import Termination

_LOG: Final = logging.getLogger("leasehold.stop")

_STOP_POLL_S: Final = 0.005


class StopSignal:
    """Says that something is to end, and why; the first reason stays.

    `request` takes a lock, so it is for threads: a handler of a system signal must not call it.

    Args:
        skip: lets time pass at once, in place of waiting: of a clock that is moved by hand.

    Attributes:
        reason: why; None: it was not given.
        is_requested: whether it was given.
        is_forced: what has not ended by itself is to be ended, where that can be done.
    """

    def __init__(self, skip: Callable[[float], object] | None = None) -> None:
        self._skip = skip
        self.reason: Termination | None = None
        self.is_requested = False
        self.is_forced = False
        self._given: threading.Event | None = None  # made for the first waiter, as few wait
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []
        self._callbacks: list[Callable[[], object]] = []
        self._running = 0  # callbacks

    def request(self, reason: Termination) -> None:
        """Give the signal; once more changes nothing.

        Each callback runs in its own thread: the caller has other attempts to stop, and
        one that hangs keeps no other from running. One that no thread can be had for is kept for
        `call_waiting`.
        """
        with self._lock:
            if self.is_requested:
                return
            self.reason, self.is_requested = reason, True
            if self._given is not None:
                self._given.set()
            listeners = tuple(self._listeners)
        for wake in listeners:
            wake()
        self.call_waiting()

    def force(self) -> None:
        """Say that what has not ended by itself is to be ended, where that can be done."""
        with self._lock:
            self.is_forced = True
            listeners = tuple(self._listeners)
        for wake in listeners:
            wake()

    def call_waiting(self, *, here: bool = False) -> None:
        """Once the signal was given, call the callbacks that had no thread before.

        Args:
            here: call those that still get no thread in this one: the caller has no other thread to
                look after.
        """
        if not self.is_requested or not self._callbacks:
            return
        with self._lock:
            waiting, self._callbacks = self._callbacks, []
            self._running += len(waiting)
        calls = [(one, partial(self._call, one)) for one in waiting]
        left = [(one, call) for one, call in calls if start_thread(call, "on-stop") is None]
        if here:
            for _, call in left:
                call()
            return
        with self._lock:
            self._running -= len(left)
            self._callbacks += [one for one, _ in left]

    def await_callbacks(self, seconds: float) -> None:
        """Once the signal was given, wait for its callbacks, but not longer than that."""
        over_at = time.monotonic() + seconds
        while self.is_requested and (self._running or self._callbacks):
            if time.monotonic() >= over_at:
                return
            time.sleep(_STOP_POLL_S)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait, but not longer than until the signal is given; return whether it was."""
        if self._skip is not None and seconds is not None:
            return self._skipped(self._skip, seconds)
        with self._lock:
            if self.is_requested:
                return True
            given = self._given = self._given or threading.Event()
        return given.wait(seconds)

    async def wait_async(self, seconds: float | None = None) -> bool:
        """Wait as `wait` does, without blocking the loop that runs."""
        if self._skip is not None and seconds is not None:
            await asyncio.sleep(0)  # the loop's other tasks have their turn all the same
            return self._skipped(self._skip, seconds)
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits there
                loop.call_soon_threadsafe(woken.set)

        forget = self.listen(wake)
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
        except TimeoutError:
            return self.is_requested
        finally:
            forget()
        return True

    def on_stop(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called, in its own thread, when the signal is given, or was.

        Its errors are logged.

        Returns:
            What ends that.
        """
        with self._lock:
            self._callbacks.append(callback)
        self.call_waiting()
        return lambda: self._forget_callback(callback)

    def listen(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have `wake` called when the signal is given, or was, and again when it is forced.

        It is called in the thread that gives it, so it must take no time.

        Returns:
            What ends that.
        """
        with self._lock:
            self._listeners.append(wake)
        if self.is_requested:
            wake()
        return lambda: self._forget_listener(wake)

    def _skipped(self, skip: Callable[[float], object], seconds: float) -> bool:
        if not self.is_requested:
            skip(seconds)
        return self.is_requested

    def _forget_listener(self, wake: Callable[[], object]) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._listeners.remove(wake)

    def _forget_callback(self, callback: Callable[[], object]) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._callbacks.remove(callback)

    def _call(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except BaseException:  # noqa: BLE001 - a thread that ends says nothing of it
            _LOG.exception("a stop callback failed")
        finally:
            with self._lock:
                self._running -= 1
