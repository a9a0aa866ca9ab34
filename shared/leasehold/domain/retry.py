"""When a failed attempt is repeated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waiting times between attempts, counted as Cloud Tasks counts its own.

    Args:
        minimum: the first wait.
        maximum: no wait is longer.
        doublings: how often the wait doubles; after that it grows by the same amount each time.
    """

    minimum: timedelta = timedelta(seconds=10)
    maximum: timedelta = timedelta(seconds=300)
    doublings: int = 5

    def wait(self, failures: int) -> timedelta:
        """Return how long to wait after this many failures in a row (1 or more)."""
        before = failures - 1
        doubled = min(before, self.doublings)
        factor: int = 2**doubled * max(1, before - doubled + 1)
        return min(self.minimum * factor, self.maximum)


#: The waits of a queue between deliveries of one task that were not answered with 2xx. A handler's
#: failure is answered so, and its next attempt is a task of its own: what a queue repeats is what
#: met an outage, of the store or of the function. So it waits for no provider, and never for long:
#: a run goes on within the longest of these waits once the outage is over.
QUEUE_BACKOFF: Final = Backoff(
    minimum=timedelta(seconds=0.1), maximum=timedelta(seconds=10), doublings=7
)
