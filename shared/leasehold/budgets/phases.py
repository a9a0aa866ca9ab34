"""How long a phase takes at the percentile: two estimates, for each group of attempts.

A model may not fit, and data may not reach far enough. So there are two estimates, and the larger
upper bound counts. Cold, warm and retried attempts are estimated apart: a limit that is right for
all of them together could clip every cold start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from statistics import NormalDist
from typing import Final

from leasehold.budgets import log_normal, survival
from leasehold.budgets.proposal import BudgetSettings, PhaseEstimate
from leasehold.budgets.samples import MAX_ATTEMPT_S, AttemptSample, Observation, Outcome

#: With fewer complete durations there is no estimate.
MIN_COMPLETE_DURATIONS: Final = 5
#: A group with fewer complete durations is not estimated apart.
MIN_GROUP_DURATIONS: Final = 20
#: Where the data do not reach the percentile, it is taken to be at most this far beyond them.
BEYOND_DATA: Final = 2.0
ALL: Final = "all"


class Phase(StrEnum):
    """A phase of an attempt, or both of them."""

    BOOTSTRAP = "bootstrap"
    EXECUTION = "execution"
    TOTAL = "total"


def observations(samples: Iterable[AttemptSample], phase: Phase) -> list[Observation]:
    """Return the durations of one phase, of the attempts that came so far and did not fail."""
    learnt = [one for one in samples if one.outcome is not Outcome.FAILED]
    if phase is Phase.BOOTSTRAP:
        return [Observation(one.bootstrap_seconds, one.execution_seconds is None) for one in learnt]
    if phase is Phase.TOTAL:
        return [Observation(one.total_seconds, one.outcome.is_censored) for one in learnt]
    return [
        Observation(one.execution_seconds, one.outcome.is_censored)
        for one in learnt
        if one.execution_seconds is not None
    ]


def share_longer_than(samples: Iterable[AttemptSample], phase: Phase, seconds: float) -> float:
    """Return the estimated share of attempts that need longer: what such a limit would clip."""
    curve = survival.survival_curve(observations(samples, phase))
    return survival.longer_than(curve, seconds) if curve else 0.0


def estimate(
    samples: Sequence[AttemptSample], phase: Phase, settings: BudgetSettings
) -> PhaseEstimate | None:
    """Return the estimate of the group that takes longest, or None with too few samples."""
    estimates = [
        _estimate(name, observed, settings)
        for name, observed in _by_group(samples, phase).items()
        if _complete(observed) >= MIN_COMPLETE_DURATIONS
    ]
    return max(estimates, key=lambda one: one.bound, default=None)


def _by_group(samples: Sequence[AttemptSample], phase: Phase) -> dict[str, list[Observation]]:
    """Return the durations by group; those of the groups that are too small join the largest."""
    members: dict[str, list[AttemptSample]] = {}
    for sample in samples:
        members.setdefault(_group(sample), []).append(sample)
    groups = {name: observations(group, phase) for name, group in members.items()}
    large = {
        name: observed
        for name, observed in groups.items()
        if _complete(observed) >= MIN_GROUP_DURATIONS
    }
    if len(groups) > 1 and len(large) <= 1:
        return {ALL: observations(samples, phase)}
    if not large:
        return groups
    rest = [one for name in groups.keys() - large.keys() for one in groups[name]]
    max(large.values(), key=len).extend(rest)
    return large


def _group(sample: AttemptSample) -> str:
    if sample.retried:
        return "retried"
    return "first cold" if sample.cold else "first warm"


def _complete(observed: Iterable[Observation]) -> int:
    return sum(not one.censored for one in observed)


def _estimate(
    group: str, observed: Sequence[Observation], settings: BudgetSettings
) -> PhaseEstimate:
    """Return both estimates of one group, and the bound that counts."""
    share, confidence = settings.percentile, settings.confidence
    curve = survival.survival_curve(observed)
    fit = log_normal.fit(observed)
    by_data = survival.percentile_bound(curve, share, NormalDist().inv_cdf(confidence))
    by_model = min(fit.percentile_bound(share, confidence), MAX_ATTEMPT_S) if fit else None
    agreed, bound = _bounds(by_data, by_model, longest=max(one.seconds for one in observed))
    return PhaseEstimate(
        kaplan_meier=survival.percentile(curve, share),
        kaplan_meier_bound=by_data,
        log_normal=fit.percentile(share) if fit else None,
        log_normal_bound=by_model,
        bound=bound,
        agreed=agreed,
        group=group,
        observations=len(observed),
        censored=len(observed) - _complete(observed),
    )


def _bounds(by_data: float | None, by_model: float | None, longest: float) -> tuple[float, float]:
    """Return the smaller and the larger bound, in seconds; both are the same if one is unknown.

    Where the data do not reach, the model alone counts, up to `BEYOND_DATA` times the longest
    duration: few samples give bounds of any size.
    """
    if by_data is None:
        reach = BEYOND_DATA * longest
        only = reach if by_model is None else min(by_model, reach)
        return only, only
    if by_model is None:
        return by_data, by_data
    return min(by_data, by_model), max(by_data, by_model)
