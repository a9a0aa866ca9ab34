"""A step of the clock that a store's time goes by: it was set, or its machine slept.

What was written before it has times of the old clock. A lease of then would be over at once, and a
wait would last until the clock has caught up, though nothing of either is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.manifest import Manifest

#: Clocks may differ by this.
SKEW: Final = timedelta(minutes=5)

_A_MOMENT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ClockStep:
    """One step.

    Args:
        by: how far the clock went ahead, beyond the seconds that passed; back: negative.
        since: the first time that the clock can have shown after it.
        noticed_at: when it was noticed, in monotonic seconds.
    """

    by: timedelta
    since: datetime
    noticed_at: float


def is_ahead(at: datetime, now: datetime) -> bool:
    """Return whether a time that was now once is too far ahead: the clock was set back since."""
    return at > now + SKEW


def after_step(manifest: Manifest, now: datetime, step: ClockStep) -> Manifest:
    """Return the run with its lease by the clock as it is now; itself, where that is so already.

    The lease runs on as if its worker was heard of now. How far the clock went is not asked: two
    processes may have seen different steps of it, and each would move the lease by its own.
    """
    lease = manifest.position.lease
    if lease is None:
        return manifest
    latest = max(manifest.position.heartbeat_at or lease.acquired_at, lease.acquired_at)
    if latest >= step.since if step.by > timedelta() else latest <= now + _A_MOMENT:
        return manifest
    by = now - latest
    moved = lease.with_(
        acquired_at=lease.acquired_at + by,
        expires_at=lease.expires_at + by,
        max_expires_at=lease.max_expires_at + by,
    )
    return manifest.at(lease=moved, heartbeat_at=now)
