"""The effects of limits on the attempts that an answer of `/budgets/{step}` has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from leasehold.api.budgets import LimitReport, SampleReport
from leasehold.budgets.histogram import Bucket, histogram
from leasehold.budgets.samples import MAX_ATTEMPT_S, AttemptSample, Outcome, believable
from leasehold.budgets.what_if import WhatIf, what_if
from leasehold.frozen import dataclass

IN_FORCE: Final = "in force"
PROPOSED: Final = "proposed"
WHAT_IF: Final = "what if"


@dataclass(frozen=True, slots=True)
class TriedLimit:
    """A limit of a whole attempt, and what it would have done.

    Args:
        name: `in force`, `proposed` or `what if`.
        by_estimate: with the shares of the window that counts for the budget.
        in_history: on all attempts.
    """

    name: str
    by_estimate: WhatIf
    in_history: WhatIf

    @property
    def seconds(self) -> float:
        """The limit."""
        return self.in_history.limit_seconds


@dataclass(frozen=True, slots=True)
class LimitEffects:
    """The attempts of a report, the limits, and how long the phases took.

    Args:
        samples: all believable attempts, the oldest first.
        counted: how many of them are in the window that counts: after a drift, the last day.
        limits: the one in force, the proposed one, and those to try.
        buckets: the histogram of the window that counts for the budget.
    """

    samples: Sequence[AttemptSample]
    counted: int
    limits: Sequence[TriedLimit]
    buckets: Sequence[Bucket]


def limit_effects(report: LimitReport, tried: Sequence[timedelta] = ()) -> LimitEffects:
    """Return what each limit would have done.

    Args:
        report: the attempts and the limits of a step.
        tried: further limits of a whole attempt.
    """
    samples = believable(map(_sample, report.samples), report.budget.derived_at)
    counted = _counted(samples, report)
    limits = [
        TriedLimit(name, what_if(counted, seconds), what_if(samples, seconds))
        for name, seconds in _limits(report, tried)
    ]
    buckets = histogram(counted, [one.seconds for one in limits])
    return LimitEffects(samples, len(counted), limits, buckets)


def _sample(report: SampleReport) -> AttemptSample | None:
    """Return an attempt as the engine has it; None: a later server knows another outcome."""
    try:
        outcome = Outcome(report.outcome)
    except ValueError:
        return None
    return AttemptSample(
        ended_at=report.ended_at,
        outcome=outcome,
        bootstrap_seconds=report.bootstrap_seconds,
        execution_seconds=report.execution_seconds,
        cold=report.cold,
        retried=report.retried,
        tail_probe=report.tail_probe,
        usd=report.usd,
    )


def _counted(samples: Sequence[AttemptSample], report: LimitReport) -> list[AttemptSample]:
    """Return the attempts of the window that counts for the budget: after a drift, the last day."""
    window = timedelta(days=report.budget.window_days)
    return [one for one in samples if one.ended_at > report.budget.derived_at - window]


def _limits(report: LimitReport, tried: Sequence[timedelta]) -> Iterator[tuple[str, float]]:
    """Yield each limit of a whole attempt: the handler's, as it ends before the deadline does."""
    in_force = [
        value
        for value in (report.agent_timeout_s.value, report.dispatch_deadline_s.value)
        if value is not None and 0 < value <= MAX_ATTEMPT_S
    ]
    if in_force:
        yield IN_FORCE, min(in_force)
    yield PROPOSED, report.budget.proposed.timeout_s
    for span in sorted(set(tried)):
        yield WHAT_IF, span.total_seconds()
