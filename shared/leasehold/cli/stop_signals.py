"""Ctrl-C and SIGTERM of a command that serves: once to stop in order, twice to stop at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType


class StopSignals:
    """Hears SIGINT and SIGTERM from now on; made in the main thread.

    Until the command says that it is ready, the first one raises KeyboardInterrupt in whatever the
    start waits for.

    Args:
        at_once: called with the second one, inside its handler.
    """

    def __init__(self, at_once: Callable[[], object] = lambda: None) -> None:
        self._at_once = at_once
        self._stop, self._ready = threading.Event(), threading.Event()
        self._count = 0
        #: What the first one is called; None: none came.
        self.name: str | None = None
        #: Whether a start was cut short. What was imported then may have made another error of it.
        self.cut_start = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    @property
    def is_at_once(self) -> bool:
        """Whether a second one came."""
        return self._count > 1

    def ready(self) -> None:
        """Raise no more: from here on, or in what ends a start."""
        self._ready.set()

    def wait(self) -> None:
        """Wait for the first one."""
        self._stop.wait()

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._count > 1:
            self._at_once()
            return
        self.name = signal.Signals(number).name
        self._stop.set()
        if not self._ready.is_set():
            self.cut_start = True
            raise KeyboardInterrupt
