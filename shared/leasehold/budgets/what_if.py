"""The effect that another limit would have had on the attempts of a step.

A limit costs on both sides: a short one ends attempts that would have had a result, a long one
has all callers wait for an attempt that hangs. Both sides are counted on the step's own history,
in seconds of attempts, and in what those have spent by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leasehold.budgets.phases import Phase, observations, share_longer_than
from leasehold.budgets.samples import AttemptSample, Outcome
from leasehold.frozen import dataclass


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The effect of a limit on attempts, had each of them run under it.

    Args:
        limit_seconds: the limit of a whole attempt: a hang is noticed after it.
        attempts: how many attempts there were.
        ended: those with a result that it would have ended.
        lost_seconds: the work that these had done until then, which would have been thrown away.
        lost_usd: what that work had spent.
        ended_sooner: those without a result that it would have ended sooner than they did end.
        saved_seconds: how much sooner, all of them together.
        saved_usd: what they spent in that time.
        unknown: those that another limit ended before this one: under this one they might have
            had a result.
        longer: the estimated share of attempts whose phase alone takes longer; None: no attempt
            came to the end of the phase, so there is no estimate.
    """

    limit_seconds: float
    attempts: int
    ended: int
    lost_seconds: float
    lost_usd: float
    ended_sooner: int
    saved_seconds: float
    saved_usd: float
    unknown: int
    longer: Mapping[Phase, float | None]


def what_if(samples: Sequence[AttemptSample], limit_seconds: float) -> WhatIf:
    """Return what the limit would have done to these attempts.

    Args:
        samples: believable ones.
        limit_seconds: the limit of a whole attempt, above 0.
    """
    longer = [one for one in samples if one.total_seconds > limit_seconds]
    ended = [one for one in longer if one.outcome is Outcome.SUCCESS]
    sooner = [one for one in longer if one.outcome is not Outcome.SUCCESS]
    return WhatIf(
        limit_seconds=limit_seconds,
        attempts=len(samples),
        ended=len(ended),
        lost_seconds=len(ended) * limit_seconds,
        lost_usd=sum(one.usd * limit_seconds / one.total_seconds for one in ended),
        ended_sooner=len(sooner),
        saved_seconds=sum(one.total_seconds - limit_seconds for one in sooner),
        saved_usd=sum(one.usd * (1 - limit_seconds / one.total_seconds) for one in sooner),
        unknown=sum(
            one.outcome is Outcome.CLIPPED and one.total_seconds < limit_seconds for one in samples
        ),
        longer={phase: _share(samples, phase, limit_seconds) for phase in Phase},
    )


def thrown_away(samples: Sequence[AttemptSample]) -> tuple[float, float]:
    """Return the work that limits have thrown away, and what it has spent: seconds and dollars."""
    clipped = [one for one in samples if one.outcome is Outcome.CLIPPED]
    return sum(one.total_seconds for one in clipped), sum(one.usd for one in clipped)


def _share(samples: Sequence[AttemptSample], phase: Phase, seconds: float) -> float | None:
    if all(one.censored for one in observations(samples, phase)):
        return None
    return share_longer_than(samples, phase, seconds)
