"""The percentile of durations without a model of their distribution, by Kaplan and Meier.

Sources:
    Kaplan and Meier, "Nonparametric estimation from incomplete observations" (1958).
    Greenwood, "The natural duration of cancer" (1926): the variance.
    Brookmeyer and Crowley, "A confidence interval for the median survival time" (1982): the bound
    of a percentile is where the bound of the curve reaches it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from leasehold.budgets.samples import Observation
from leasehold.frozen import dataclass


@dataclass(frozen=True, slots=True)
class SurvivalPoint:
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
    ended = Counter(one.seconds for one in observations if not one.censored)
    censored = Counter(one.seconds for one in observations if one.censored)
    at_risk = len(observations)
    for seconds in sorted(ended.keys() | censored.keys()):
        if ended[seconds]:
            yield seconds, ended[seconds], at_risk
        at_risk -= ended[seconds] + censored[seconds]


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
