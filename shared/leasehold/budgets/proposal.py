"""The settings of the budget engine, and the proposal that it returns."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from leasehold.budgets.samples import SampleCounts
from leasehold.frozen import dataclass


class Strategy(StrEnum):
    """How the limit of a step is chosen."""

    #: The declared limit stays.
    FIXED = "fixed"
    #: The declared limit stays, and a better one is proposed.
    PROPOSE = "propose"
    #: The limit follows the percentiles of both phases.
    PHASE_DECOUPLED = "phase_decoupled"


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """How a limit is derived, with the defaults of the configuration file.

    Args:
        strategy: whether it is applied.
        percentile: the share of attempts that should end within the limit, as 0.95.
        confidence: how sure it should be that so many do: the confidence of each upper bound.
        safety_buffer: what is added to the percentiles.
        rounding_granularity: the total is rounded up to a multiple of it.
        window: how far back samples are read.
        short_window: the last part of the window; after a drift it alone counts.
        shortest: the shortest total, the lowest rung of the time ladder.
        longest: the longest total, the cap of the time ladder.
        clean_up: a handler is asked to end this long before its limit, at half of it at the
            earliest.
    """

    strategy: Strategy = Strategy.FIXED
    percentile: float = 0.95
    confidence: float = 0.99
    safety_buffer: timedelta = timedelta(seconds=180)
    rounding_granularity: timedelta = timedelta(seconds=60)
    window: timedelta = timedelta(days=7)
    short_window: timedelta = timedelta(days=1)
    shortest: timedelta = timedelta(seconds=15)
    longest: timedelta = timedelta(minutes=30)
    clean_up: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of an attempt, in seconds.

    Args:
        total_seconds: for both phases: the dispatch deadline.
        execution_seconds: for the execution: the hard limit of the handler, below the total.
    """

    total_seconds: float
    execution_seconds: float


@dataclass(frozen=True, slots=True)
class LimitInForce:
    """The limit that the last derivation applied.

    Args:
        limit: the limit.
        since: when its total last changed, in UTC: `BudgetProposal.changed_at` of that derivation.
        handler_seconds: the hard limit of the handler that followed from it, for its bootstrap and
            its execution; None: it has the execution alone.
    """

    limit: Limit
    since: datetime
    handler_seconds: float | None = None

    @property
    def for_handler(self) -> float:
        """The seconds of a handler that hangs, wherever it does."""
        return self.handler_seconds or self.limit.execution_seconds


@dataclass(frozen=True, slots=True)
class PhaseEstimate:
    """How long one phase takes at the percentile, in seconds, by both estimates.

    Args:
        kaplan_meier: the percentile by Kaplan and Meier; None where it lies beyond all data.
        kaplan_meier_bound: its upper confidence bound; None where that lies beyond all data.
        log_normal: the percentile by a censored log-normal fit; None where there is no fit.
        log_normal_bound: its upper confidence bound; None where there is no fit.
        bound: the bound that counts, the larger of both.
        agreed: what both estimates ask for at least, the smaller of both.
        group: the attempts that need it most: `first cold`, `first warm`, `retried` or `all`.
        observations: of that group.
        censored: how many of them were ended before the end of the phase.
    """

    kaplan_meier: float | None
    kaplan_meier_bound: float | None
    log_normal: float | None
    log_normal_bound: float | None
    bound: float
    agreed: float
    group: str
    observations: int
    censored: int


@dataclass(frozen=True, slots=True)
class BudgetProposal:
    """The figures of a step, the limit that follows from them, and why.

    Args:
        bootstrap: the estimate of the bootstrap; None with too few samples.
        execution: the estimate of the execution; None with too few samples.
        counts: the samples of the window, by kind.
        window: the window that counts: the short one after a drift.
        has_drifted: whether the durations of the short window differ from those before it.
        clips_in_a_row: whether the limit in force ended the last attempts, each of them.
        declared: the limit of the step's entry.
        proposed: the limit that the samples ask for.
        applied: the limit of the next dispatch, on its way to the proposed one; the declared one
            unless the strategy is `phase_decoupled`.
        changed_at: when the total of `applied` last changed, or was first derived, in UTC: the next
            derivation gets it as `LimitInForce.since`. Its execution rises by little most hours,
            which is no reason for the total to stay.
        only_proposed: whether the estimates differ too much for the proposed limit to be applied.
        reasons: what changed and why, one English sentence each.
    """

    bootstrap: PhaseEstimate | None
    execution: PhaseEstimate | None
    counts: SampleCounts
    window: timedelta
    has_drifted: bool
    clips_in_a_row: bool
    declared: Limit
    proposed: Limit
    applied: Limit
    changed_at: datetime
    only_proposed: bool
    reasons: tuple[str, ...]
