"""A stop signal: given once, heard by threads, coroutines and callbacks, however they wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Final

from leasehold.domain.status import Termination

_LOG: Final = logging.getLogger("leasehold.stop")


class StopSignal:
    """Says that something is to end, and why; the first reason stays.

    `request` takes a lock, so it is for threads: a handler of a system signal must not call it.
    """

    def __init__(self) -> None:
        self.reason: Termination | None = None
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []
        self._callbacks: list[Callable[[], object]] = []

    @property
    def is_requested(self) -> bool:
        """Whether it was given."""
        return self._event.is_set()

    def request(self, reason: Termination) -> None:
        """Give the signal; once more changes nothing.

        Each callback runs in a thread of its own: whoever asks for a stop has others to ask, and
        one that hangs keeps no other from running.
        """
        with self._lock:
            if self._event.is_set():
                return
            self.reason = reason
            self._event.set()
            listeners, callbacks = tuple(self._listeners), tuple(self._callbacks)
        for wake in listeners:
            wake()
        for callback in callbacks:
            _call(callback)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait, but not longer than until the signal is given; return whether it was."""
        return self._event.wait(seconds)

    async def wait_async(self, seconds: float | None = None) -> bool:
        """Wait as `wait` does, without blocking the loop that runs."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
                loop.call_soon_threadsafe(woken.set)

        forget = self._listen(wake)
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
        except TimeoutError:
            return self.is_requested
        finally:
            forget()
        return True

    def on_stop(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called, in a thread of its own, when the signal is given, or was.

        What it raises is logged.

        Returns:
            What ends that.
        """
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return lambda: self._forget(self._callbacks, callback)
        _call(callback)
        return lambda: None

    def _listen(self, wake: Callable[[], object]) -> Callable[[], None]:
        with self._lock:
            if not self._event.is_set():
                self._listeners.append(wake)
                return lambda: self._forget(self._listeners, wake)
        wake()
        return lambda: None

    def _forget(self, those: list[Callable[[], object]], one: Callable[[], object]) -> None:
        with self._lock, contextlib.suppress(ValueError):
            those.remove(one)


def _call(callback: Callable[[], object]) -> None:
    threading.Thread(target=_guarded, args=(callback,), name="on-stop", daemon=True).start()


def _guarded(callback: Callable[[], object]) -> None:
    try:
        callback()
    except BaseException:  # noqa: BLE001 - a thread that ends says nothing of it
        _LOG.exception("a stop callback failed")
