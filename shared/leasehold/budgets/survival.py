"""Survival curves of durations: their percentiles, by Kaplan and Meier, and whether two differ.

Neither has a model of the distribution; complete and censored durations both count.

Sources:
    Kaplan and Meier, "Nonparametric estimation from incomplete observations" (1958).
    Greenwood, "The natural duration of cancer" (1926): the variance.
    Brookmeyer and Crowley, "A confidence interval for the median survival time" (1982): the bound
    of a percentile is where the bound of the curve reaches it.
    Mantel, "Evaluation of survival data and two new rank order statistics" (1966): the test.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from leasehold.budgets.samples import Observation


class SurvivalPoint(NamedTuple):
    """One step down of the survival curve.

    Args:
        seconds: the duration at which phases ended.
        survival: S(t), the estimated share of phases that take longer.
        greenwood_sum: the sum of d / (n (n - d)) so far; infinite where no phase is left.
    """

    seconds: float
    survival: float
    greenwood_sum: float

    def upper(self, z: float) -> float:
        """Return the upper confidence bound of the survival, on the log-log scale.

        S(t) ** exp(-z se), where se**2 = greenwood_sum / log(S(t))**2: such a bound stays between
        0 and 1. Source: Kalbfleisch and Prentice (1980).
        """
        if self.survival <= 0:
            return 1.0  # no phase is left: nothing is known about the next one
        log_survival = math.log(self.survival)
        standard_error = math.sqrt(self.greenwood_sum) / abs(log_survival)
        return math.exp(log_survival * math.exp(-z * standard_error))


def survival_curve(observations: Sequence[Observation]) -> list[SurvivalPoint]:
    """Return the survival curve, a point for each duration at which phases ended."""
    points = []
    survival, greenwood_sum = 1.0, 0.0
    for seconds, ended, at_risk in ends(observations):
        left = at_risk - ended
        survival *= left / at_risk
        greenwood_sum += ended / (at_risk * left) if left else math.inf
        points.append(SurvivalPoint(seconds, survival, greenwood_sum))
    return points


def ends(observations: Sequence[Observation]) -> Iterator[tuple[float, int, int]]:
    """Yield each duration at which phases ended, how many did, and how many were at risk.

    A phase that was censored at the same duration was still at risk.
    """
    seen = Counter([one.seconds for one in observations])
    ended = Counter([one.seconds for one in observations if not one.censored])
    at_risk = len(observations)
    for seconds in sorted(seen):
        if seconds in ended:
            yield seconds, ended[seconds], at_risk
        at_risk -= seen[seconds]


def percentile(curve: Sequence[SurvivalPoint], share: float) -> float | None:
    """Return the seconds within which this share of phases ends; None where no data reach it."""
    return next((one.seconds for one in curve if one.survival <= _longer(share)), None)


def percentile_bound(curve: Sequence[SurvivalPoint], share: float, z: float) -> float | None:
    """Return the upper confidence bound of the percentile; None where no data reach it.

    Args:
        curve: the survival curve.
        share: the percentile, as 0.95.
        z: the normal quantile of the confidence, as 1.645 for 95 %, one-sided.
    """
    return next((one.seconds for one in curve if one.upper(z) <= _longer(share)), None)


def longer_than(curve: Sequence[SurvivalPoint], seconds: float) -> float:
    """Return the estimated share of phases that take longer than these seconds."""
    passed = [one.survival for one in curve if one.seconds <= seconds]
    return passed[-1] if passed else 1.0


def _longer(share: float) -> float:
    """Return the share of phases that take longer, with room for the rounding of products."""
    return 1 - share + 1e-12


# Whether the durations of the last day differ from those before: the log-rank test.


#: Standard deviations; by chance one test in a thousand is beyond it.
DRIFT_Z: Final = 3.29
#: With fewer durations on either side there is no test.
MIN_COMPARED_DURATIONS: Final = 20


def has_drifted(recent: Sequence[Observation], before: Sequence[Observation]) -> bool:
    """Return whether the recent durations are longer or shorter than chance explains."""
    if min(len(recent), len(before)) < MIN_COMPARED_DURATIONS:
        return False
    return abs(log_rank_z(recent, before)) > DRIFT_Z


def log_rank_z(recent: Sequence[Observation], before: Sequence[Observation]) -> float:
    """Return the statistic of the test: above 0 where recent phases end earlier.

    Where d of the n phases at risk end, and a share s of those at risk is recent, d s recent ones
    should end by chance, with the variance d s (1 - s) (n - d) / (n - 1).
    """
    recent_ended = Counter(one.seconds for one in recent if not one.censored)
    recent_seconds = sorted(one.seconds for one in recent)
    surplus = variance = 0.0
    for seconds, ended, at_risk in ends([*recent, *before]):
        recent_at_risk = len(recent) - bisect_left(recent_seconds, seconds)
        share = recent_at_risk / at_risk
        surplus += recent_ended.get(seconds, 0) - ended * share
        if at_risk > 1:
            variance += ended * share * (1 - share) * (at_risk - ended) / (at_risk - 1)
    return surplus / math.sqrt(variance) if variance > 0 else 0.0
