"""How fast one queue may start deliveries. Pure: time comes in as a value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from leasehold.devserver.cloud_tasks.task import DeliveryResult
from leasehold.domain.retry import doubling

#: The pauses after responses 429 or 503 in a row. The service does not say its own.
PAUSES: Final = doubling(timedelta(seconds=1), timedelta(seconds=60))


@dataclass(frozen=True, slots=True)
class RateLimits:
    """How fast a queue goes.

    Args:
        max_dispatches_per_second: more than 0.
        max_concurrent_dispatches: deliveries whose response it waits for, at a time.
    """

    max_dispatches_per_second: float = 500.0
    max_concurrent_dispatches: int = 1000

    @property
    def max_burst_size(self) -> int:
        """How many deliveries an idle queue starts at once. The service does not say how."""
        return max(10, min(100, math.ceil(self.max_dispatches_per_second / 5)))


class RateLimiter:
    """A leaky bucket for the rate, and pauses after responses that ask for them.

    A pause doubles with each 429 or 503 that comes after the one before is over, is at least as
    long as Retry-After says, and any other response sets it back. That the service also slows
    down at a high error rate, and starts slowly after a queue was paused, is left out.
    """

    def __init__(self, limits: RateLimits, now: datetime) -> None:
        self._full_until = now
        self._paused_until = now
        self._refusals = 0  # in a row
        self.configure(limits)

    def configure(self, limits: RateLimits) -> None:
        """Apply these limits from now on."""
        self._interval = timedelta(seconds=1 / limits.max_dispatches_per_second)
        self._burst = self._interval * (limits.max_burst_size - 1)

    def opens_at(self) -> datetime:
        """Return when the next delivery may start."""
        return max(self._full_until - self._burst, self._paused_until)

    def started(self, now: datetime) -> None:
        """Count a delivery."""
        self._full_until = max(self._full_until, now) + self._interval

    def finished(self, result: DeliveryResult, now: datetime) -> None:
        """Pause, or go on, as the result of a delivery asks."""
        if not result.throttles:
            self._refusals = 0
        elif now >= self._paused_until:
            self._refusals += 1
            self._paused_until = now + max(PAUSES.wait(self._refusals), result.retry_after)
