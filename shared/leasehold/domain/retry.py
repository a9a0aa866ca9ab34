"""When a failed attempt is repeated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


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
