"""The rules that lead from percentiles to the limit of the next attempt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from leasehold.budgets.phases import Phase, share_longer_than
from leasehold.budgets.proposal import BudgetSettings, Limit, LimitInForce
from leasehold.budgets.samples import AttemptSample, Outcome

#: How many samples the declared limit is worth: beside as many, it counts half.
PRIOR_SAMPLES: Final = 20
#: A limit goes down by no more than this share a day.
DOWN_A_DAY: Final = 0.2
#: So many clipped attempts in a row double the limit.
CLIPPED_IN_A_ROW: Final = 3
#: A limit is not below the longest success of a small window, times this.
ABOVE_LONGEST: Final = 1.1
#: An attempt that the limit in force clipped took at least this part of it.
_CLIPPED_SHARE: Final = 0.95
#: The execution ends this much before the total, so that an attempt can still settle.
_SETTLE_S: Final = 1.0


def phase_decoupled(
    bootstrap_s: float, execution_s: float, buffer_s: float, granularity_s: float
) -> Limit:
    """Return the limit of the strategy `phase_decoupled`; all in seconds.

    The total is ceil(bootstrap + execution + buffer), rounded up to the granularity. The execution
    has max(0, execution + buffer).
    """
    return Limit(
        total_seconds=rounded_up(math.ceil(bootstrap_s + execution_s + buffer_s), granularity_s),
        execution_seconds=max(0.0, execution_s + buffer_s),
    )


def rounded_up(seconds: float, granularity_s: float) -> float:
    """Return the next multiple of the granularity, in seconds."""
    return math.ceil(seconds / granularity_s - 1e-9) * granularity_s


def samples_for_the_longest(percentile: float, confidence: float) -> int:
    """Return how many samples it takes for the longest of them to reach the percentile so surely.

    None of n reaches it with the probability percentile ** n: it takes 59 for 95 % and 95 %.
    Source: Wilks, "Determination of sample sizes for setting tolerance limits" (1941).
    """
    return math.ceil(math.log(1 - confidence) / math.log(percentile))


def with_prior(required: Limit, declared: Limit, samples: int) -> Limit:
    """Return a limit between the declared one and the one that so many samples require.

    The mean of their logarithms, where the declared one has the weight of `PRIOR_SAMPLES`: as with
    a normal prior of the logarithm. So a new step starts at the declared limit, without a jump.
    """
    weight = PRIOR_SAMPLES / (PRIOR_SAMPLES + samples)
    return Limit(
        _geometric_mean(declared.total_seconds, required.total_seconds, weight),
        _geometric_mean(declared.execution_seconds, required.execution_seconds, weight),
    )


def _geometric_mean(one: float, other: float, weight: float) -> float:
    return math.pow(one, weight) * math.pow(other, 1 - weight)


def clips_too_many(limit: Limit, samples: Sequence[AttemptSample], percentile: float) -> bool:
    """Return whether more attempts need longer than the percentile leaves: it is refuted."""
    longer = max(
        share_longer_than(samples, Phase.TOTAL, limit.total_seconds),
        share_longer_than(samples, Phase.EXECUTION, limit.execution_seconds),
    )
    return longer > 1 - percentile


def above_the_longest(samples: Sequence[AttemptSample]) -> Limit:
    """Return the durations of the longest successes, times `ABOVE_LONGEST`."""
    successes = [one for one in samples if one.outcome is Outcome.SUCCESS]
    total = max((one.total_seconds for one in successes), default=0.0)
    execution = max((one.execution_seconds or 0.0 for one in successes), default=0.0)
    return Limit(ABOVE_LONGEST * total, ABOVE_LONGEST * execution)


def on_the_ladder(limit: Limit, settings: BudgetSettings) -> Limit:
    """Return the limit rounded up, within the time ladder, with an execution below its total."""
    total = rounded_up(limit.total_seconds, settings.rounding_granularity.total_seconds())
    total = min(max(total, settings.shortest.total_seconds()), settings.longest.total_seconds())
    return Limit(total, min(limit.execution_seconds, total - _SETTLE_S))


def clips_in_a_row(
    samples: Sequence[AttemptSample], current: LimitInForce, settings: BudgetSettings
) -> bool:
    """Return whether the limit in force clipped the last `CLIPPED_IN_A_ROW` attempts.

    Failed and interrupted attempts and tail probes say nothing about it.
    """
    handler_s = current.for_handler
    asked_to_end_s = handler_s - min(settings.clean_up.total_seconds(), handler_s / 2)
    under_it = [
        one
        for one in samples
        if one.outcome in {Outcome.SUCCESS, Outcome.CLIPPED} and not one.tail_probe
    ]
    last = under_it[-CLIPPED_IN_A_ROW:]
    return len(last) == CLIPPED_IN_A_ROW and all(
        # and not a shorter limit before this one
        one.outcome is Outcome.CLIPPED and one.total_seconds >= _CLIPPED_SHARE * asked_to_end_s
        for one in last
    )


def doubled(current: LimitInForce) -> Limit:
    """Return twice the limit; the handler has twice its time, also if it is for its bootstrap."""
    limit = current.limit
    return Limit(2 * limit.total_seconds, limit.execution_seconds + current.for_handler)


def lowered(target: Limit, current: LimitInForce, now: datetime, settings: BudgetSettings) -> Limit:
    """Return the target, or how far the limit may go down to it: `DOWN_A_DAY` a day.

    However long the limit stood, one derivation lowers it by no more than the share of a day; or
    by one step of the granularity, if that is more, once the limit stood long enough for it.
    """
    stood = max(0.0, (now - current.since) / timedelta(days=1))
    kept = (1 - DOWN_A_DAY) ** min(1.0, stood)
    step_s = settings.rounding_granularity.total_seconds()
    a_step_less = 1 - step_s / current.limit.total_seconds
    if (1 - DOWN_A_DAY) ** stood <= a_step_less:
        kept = min(kept, a_step_less)
    floor = Limit(kept * current.limit.total_seconds, kept * current.limit.execution_seconds)
    return larger(target, floor)


def larger(one: Limit, other: Limit) -> Limit:
    """Return the larger of both, for the total and for the execution."""
    return Limit(
        max(one.total_seconds, other.total_seconds),
        max(one.execution_seconds, other.execution_seconds),
    )
