"""A stop signal: given once, heard by threads, coroutines and callbacks, however they wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Final

_LOG: Final = logging.getLogger("leasehold.stop")


class StopSignal:
    """Says that something is to end, and why; the first reason stays.

    `request` takes a lock, so it is for threads: a handler of a system signal must not call it.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []
        self._callbacks: list[Callable[[], object]] = []

    @property
    def is_requested(self) -> bool:
        """Whether it was given."""
        return self._event.is_set()

    def request(self, reason: str) -> None:
        """Give the signal; once more changes nothing.

        Callbacks run in a thread of their own: whoever asks for a stop has others to ask.
        """
        with self._lock:
            if self._event.is_set():
                return
            self.reason = reason
            self._event.set()
            listeners, callbacks = tuple(self._listeners), tuple(self._callbacks)
        for wake in listeners:
            wake()
        if callbacks:
            threading.Thread(target=_call_each, args=callbacks, name="on-stop", daemon=True).start()

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
        """Have `callback` called when the signal is given, at once if it was; return what ends it.

        What it raises is logged and disturbs no other.
        """
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return lambda: self._forget(self._callbacks, callback)
        _call_each(callback)
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


def _call_each(*callbacks: Callable[[], object]) -> None:
    for callback in callbacks:
        try:
            callback()
        except Exception:  # noqa: BLE001 - as on_stop says
            _LOG.exception("a stop callback failed")
