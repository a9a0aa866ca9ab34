"""What a queue may do: how often it repeats a task, and how fast it goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from leasehold.domain.retry import Backoff

UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """When a task that failed is delivered again, and when no more.

    Args:
        max_attempts: attempts in all, the first included; -1: no limit.
        max_retry_duration: since the first attempt; zero: no limit.
        min_backoff: the first wait.
        max_backoff: no wait is longer.
        max_doublings: how often the wait doubles before it grows by a steady amount.
    """

    max_attempts: int = 100
    max_retry_duration: timedelta = timedelta()
    min_backoff: timedelta = timedelta(seconds=0.1)
    max_backoff: timedelta = timedelta(hours=1)
    max_doublings: int = 16

    def wait(self, attempts: int) -> timedelta:
        """Return how long to wait after so many attempts (1 or more)."""
        backoff = Backoff(self.min_backoff, self.max_backoff, self.max_doublings)
        try:
            return backoff.wait(attempts)
        except OverflowError:
            return self.max_backoff

    def gives_up(self, attempts: int, tried_for: timedelta) -> bool:
        """Return whether both limits are reached; a limit that is not set does not hold it up.

        A task without any limit is repeated for ever (the service: until its retention ends).
        """
        endless = self.max_attempts == UNLIMITED
        if endless and not self.max_retry_duration:
            return False
        return (endless or attempts >= self.max_attempts) and tried_for >= self.max_retry_duration


@dataclass(frozen=True, slots=True)
class RateLimits:
    """How fast a queue goes.

    Args:
        max_dispatches_per_second: more than 0.
        max_concurrent_dispatches: deliveries whose answer it waits for, at a time.
    """

    max_dispatches_per_second: float = 500.0
    max_concurrent_dispatches: int = 1000

    @property
    def max_burst_size(self) -> int:
        """How many deliveries a rested queue starts at once. The service does not say how."""
        return max(10, min(100, math.ceil(self.max_dispatches_per_second / 5)))


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What can be set of a queue; as the service has it by default."""

    retry: RetryConfig = field(default_factory=RetryConfig)
    rate: RateLimits = field(default_factory=RateLimits)
