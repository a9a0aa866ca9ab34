"""Threads for calls that are waited for only so long: one that hangs goes on without the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from leasehold.worker.kept_threads import KeptThreads

T = TypeVar("T")

#: With so many that are still under way, no other is begun.
MOST_LATE: Final = 4


class CallThreads:
    """Makes each call in a thread; only so many may hang.

    Args:
        name: what the threads are named.
        most_late: how many calls may go on after they were waited for.
    """

    def __init__(self, name: str, most_late: int = MOST_LATE) -> None:
        self._threads = KeptThreads(name)
        self._most_late = most_late
        self._late: list[Future[Any]] = []
        self._noting = threading.Lock()

    def are_taken(self) -> bool:
        """Return whether as many calls hang as may: no other is to be made."""
        with self._noting:
            self._late = [call for call in self._late if not call.done()]
            return len(self._late) >= self._most_late

    def make(self, call: Callable[[], T], *, wait_s: float) -> Future[T] | None:
        """Make a call, and return it when it is over or was waited for.

        None: the system has no thread for it, and it is not made.
        """
        made = self._threads.start_call(call)
        if made is not None:
            with suppress(TimeoutError):
                made.exception(wait_s)
            self._note_late(made)
        return made

    def _note_late(self, call: Future[Any]) -> None:
        if not call.done():
            with self._noting:
                self._late.append(call)

    def close(self) -> None:
        """End the threads that have no call to make."""
        self._threads.close()
