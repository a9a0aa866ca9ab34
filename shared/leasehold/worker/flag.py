"""A flag that threads can wait for."""

from __future__ import annotations

import threading


class Flag:
    """Does what `threading.Event` does; what threads wait with is made once one waits.

    Each attempt has two, and as a rule nobody waits for either.
    """

    __slots__ = ("_event", "_is_set", "_lock")

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """Return whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake all that wait; it is never taken back."""
        with self._lock:
            self._is_set = True
            if self._event is not None:
                self._event.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, but not longer than `seconds`; return whether it is."""
        with self._lock:
            if self._is_set:
                return True
            event = self._event = self._event or threading.Event()
        return event.wait(seconds)
