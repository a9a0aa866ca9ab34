"""How long the phases of attempts took, in buckets that grow by the same factor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from leasehold.budgets.phases import Phase, observations
from leasehold.budgets.samples import AttemptSample
from leasehold.frozen import dataclass

#: A screen has room for so many buckets.
MAX_BUCKETS: Final = 24
#: The finest factor that fits is taken; with the last one, all durations up to 7 days fit.
_FACTORS: Final = (1.25, math.sqrt(2), 2.0)
#: Shorter durations are in the first bucket.
_MIN_DURATION_S: Final = 0.125
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Bucket:
    """The phases that took this long, and longer than the bucket before.

    Args:
        up_to_seconds: the longest duration.
        complete: how many phases ended by themselves.
        censored: how many were ended, and would have taken longer.
    """

    up_to_seconds: float
    complete: Mapping[Phase, int]
    censored: Mapping[Phase, int]


def histogram(samples: Sequence[AttemptSample], limits: Sequence[float] = ()) -> list[Bucket]:
    """Return the buckets from the shortest phase to the longest one, or to the longest limit.

    Args:
        samples: believable ones; of failures no duration is counted.
        limits: in seconds; each is within the buckets.
    """
    observed = {phase: observations(samples, phase) for phase in Phase}
    seconds = [one.seconds for group in observed.values() for one in group]
    if not seconds:
        return []
    factor, first, last = _scale([*seconds, *limits])
    counts = {
        (phase, is_censored): Counter(
            _index(one.seconds, factor) for one in group if one.censored is is_censored
        )
        for phase, group in observed.items()
        for is_censored in (False, True)
    }
    return [
        Bucket(
            up_to_seconds=factor**index,
            complete={phase: counts[phase, False][index] for phase in Phase},
            censored={phase: counts[phase, True][index] for phase in Phase},
        )
        for index in range(first, last + 1)
    ]


def _scale(seconds: Sequence[float]) -> tuple[float, int, int]:
    """Return the factor, and the indices of the first and the last bucket."""
    scales = [
        (factor, _index(min(seconds), factor), _index(max(seconds), factor)) for factor in _FACTORS
    ]
    fits = (scale for scale in scales if scale[2] - scale[1] < MAX_BUCKETS)
    return next(fits, scales[-1])


def _index(seconds: float, factor: float) -> int:
    """Return the bucket of a duration: the first one whose upper end it does not pass."""
    return math.ceil(math.log(max(seconds, _MIN_DURATION_S)) / math.log(factor) - _ROUNDING)
