"""How long a handler has said nothing, and whether that is too long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

#: How often a worker listens at the least. A worker that did not, because it was frozen or had no
#: CPU, counts no more than this of the time between.
LISTEN_EVERY_S: Final = 1.0


class Silence:
    """Counts how long a handler has said nothing, as far as its worker was there to hear.

    Args:
        limit: how long it may say nothing; None: there is no limit.
        now: when the handler begins, in monotonic seconds.

    Attributes:
        is_over: whether it has said nothing for too long.
    """

    def __init__(self, limit: timedelta | None, now: float) -> None:
        self._limit_s = math.inf if limit is None else limit.total_seconds()
        self._silent_s = 0.0
        self._listened_at = now
        self._is_heard = False
        self._waits: list[None] = []

    def hear(self) -> None:
        """Note that the handler says something; any thread may."""
        self._is_heard = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Have a thread of the handler wait for a store inside, however long that takes."""
        self._waits.append(None)
        try:
            yield
        finally:
            self.hear()
            self._waits.pop()

    def listen(self, now: float, *, waits: bool = False) -> bool:
        """Count the time since the last call; return whether the limit is reached.

        Args:
            now: monotonic seconds.
            waits: whether the handler waits for its worker, which is no silence.
        """
        passed, self._listened_at = now - self._listened_at, now
        if self._is_heard or self._waits or waits:
            self._is_heard, self._silent_s = False, 0.0
        else:
            self._silent_s += min(passed, LISTEN_EVERY_S)
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether it has said nothing for too long."""
        return self._silent_s >= self._limit_s

    @property
    def left_s(self) -> float:
        """For how many seconds it may say nothing from now on."""
        return self._limit_s - self._silent_s
