"""The pace of an attempt: how long it is from checkpoint to checkpoint, and so when to end at one.

An attempt that goes on until its limit fails there, and does again what it did since its last
checkpoint. One that ends at a checkpoint, just before, loses nothing: the next one goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from leasehold.attempt.calls import AttemptFacts
from leasehold.domain.iterations import is_further

#: Time is short where less is left to the soft limit than this share of the hard one,
_LEAST: Final = 0.05
#: or than this much of the longest time between two checkpoints,
_NEXT_ONE: Final = 1.2
#: and never where more is left than this share: the first checkpoint may have been a late one.
_MOST: Final = 0.5


class Pace:
    """Measures an attempt.

    Args:
        attempt: its limits, and how far the step ever was.
        time_left: returns the seconds until the hard limit.
        thread: the handler's own.
        beat: what was left when the handler began.

    Attributes:
        looks_back: whether the handler has asked for what an earlier attempt kept; one that never
            does begins at the beginning each time, and nothing is won by ending it.
        came_further: whether this attempt brought the step further than it ever was.
    """

    def __init__(
        self, attempt: AttemptFacts, time_left: Callable[[], float], thread: int, beat: float
    ) -> None:
        self.looks_back = False
        self.came_further = False
        self._attempt = attempt
        self._time_left = time_left
        self._furthest = dict(attempt.furthest)
        self._thread = thread
        self._longest = 0.0
        self._beat = beat

    def note(self, iteration_count: int, phase: str) -> bool:
        """Note a checkpoint that is kept; return whether the step was never as far."""
        further = is_further(self._furthest, phase, iteration_count)
        if further:
            self._furthest[phase] = iteration_count
            self.came_further = True
        return further

    def beat(self) -> None:
        """Measure the time since the last beat: from one place where it may end to the next."""
        left = self._time_left()
        self._longest = max(self._longest, self._beat - left)
        self._beat = left

    def is_short(self) -> bool:
        """Return whether the time to the soft limit may not be enough until the next beat.

        Only in the handler's own thread: what is raised in another one may reach nobody.
        """
        if threading.get_ident() != self._thread or not self.looks_back:
            return False
        hard = self._attempt.hard_s
        margin = min(max(_LEAST * hard, _NEXT_ONE * self._longest), _MOST * hard)
        return self._time_left() - self._attempt.cleanup_s < margin
