"""How fast one queue may start deliveries. Pure: time comes in as a value."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.devserver.cloud_tasks.limits import RateLimits
from leasehold.devserver.cloud_tasks.tasks import Answer

#: The first rest after a 429 or 503, and the longest. The service does not say its own.
FIRST_REST: Final = timedelta(seconds=1)
LONGEST_REST: Final = timedelta(seconds=60)


class Pace:
    """A leaky bucket for the rate, and rests after answers that ask for them.

    A rest doubles with each 429 or 503 that comes after the one before is over, is at least as
    long as Retry-After says, and any other answer sets it back. That the service also slows
    down at a high error rate, and starts slowly after a pause, is left out.
    """

    def __init__(self, limits: RateLimits, now: datetime) -> None:
        self._full_until = now
        self._resting_until = now
        self._rest = FIRST_REST
        self.limit(limits)

    def limit(self, limits: RateLimits) -> None:
        """Go by these limits from now on."""
        self._interval = timedelta(seconds=1 / limits.max_dispatches_per_second)
        self._burst = self._interval * (limits.max_burst_size - 1)

    def opens_at(self) -> datetime:
        """Return when the next delivery may start."""
        return max(self._full_until - self._burst, self._resting_until)

    def started(self, now: datetime) -> None:
        """Count a delivery."""
        self._full_until = max(self._full_until, now) + self._interval

    def answered(self, answer: Answer, now: datetime) -> None:
        """Rest, or go on, as the answer asks."""
        if not answer.throttles:
            self._rest = FIRST_REST
        elif now >= self._resting_until:
            self._resting_until = now + max(self._rest, answer.retry_after)
            self._rest = min(2 * self._rest, LONGEST_REST)
