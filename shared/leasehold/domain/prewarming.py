"""How many instances of a function to keep warm, by what its cold starts were measured to take."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

#: With fewer, chance decides.
LEAST_STARTS: Final = 20
#: A shorter wait is little beside what a step takes.
LEAST_WAIT: Final = timedelta(seconds=5)
#: With fewer an hour, an instance that is kept warm idles nearly always.
LEAST_PER_HOUR: Final = 1.0
#: So long an instance that idles is kept anyway, so those of a burst begin within it.
_BURST: Final = timedelta(minutes=15)
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ColdStart:
    """An attempt that waited for its instance: when it began, and what it waited for."""

    at: datetime
    bootstrap: timedelta


@dataclass(frozen=True, slots=True)
class Prewarming:
    """A proposal, and what it is made of.

    Args:
        instances: so many to keep warm.
        p95: of the bootstraps.
        starts: how many cold starts there were.
        per_hour: of them.
    """

    instances: int
    p95: timedelta
    starts: int
    per_hour: float


def prewarming(starts: Sequence[ColdStart], most: int) -> Prewarming | None:
    """Return how many instances to keep warm; None: none more, or too little is known.

    As many as begin together in a usual burst: the median of the quarters of an hour that had a
    cold start. One burst that was unlike all others makes no bill.

    Args:
        starts: those that were measured, in any order.
        most: how many instances there may be.
    """
    if len(starts) < LEAST_STARTS:
        return None
    waits = sorted(start.bootstrap for start in starts)
    p95 = waits[math.ceil(0.95 * len(waits)) - 1]
    times = [start.at for start in starts]
    per_hour = len(starts) / max(1.0, (max(times) - min(times)) / _HOUR)
    if p95 < LEAST_WAIT or per_hour < LEAST_PER_HOUR:
        return None
    bursts = Counter(int(at.timestamp() // _BURST.total_seconds()) for at in times)
    usual = math.ceil(statistics.median(bursts.values()))
    return Prewarming(min(usual, most), p95, len(starts), per_hour)
