"""The budget engine in order: from the samples of a step to its next limit, and why."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from leasehold.budgets import limits, reasons
from leasehold.budgets.phases import Phase, estimate, observations
from leasehold.budgets.proposal import (
    BudgetProposal,
    BudgetSettings,
    Limit,
    LimitInForce,
    PhaseEstimate,
    Strategy,
)
from leasehold.budgets.samples import AttemptSample, Outcome, SampleCounts, believable, count
from leasehold.budgets.survival import has_drifted
from leasehold.frozen import dataclass

#: Where one estimate asks for more than this many times the other, a person looks first.
DISAGREEMENT: Final = 1.5


def derive_budget(
    samples: Iterable[object],
    *,
    now: datetime,
    declared: Limit,
    current: LimitInForce | None = None,
    settings: BudgetSettings | None = None,
) -> BudgetProposal:
    """Return what the samples of a step say about its limit, and the limit of its next dispatch.

    Args:
        samples: its attempts, in any order; what is not a believable `AttemptSample` is dropped.
        now: the time of the derivation, in UTC.
        declared: the limit of the step's entry.
        current: the limit that the last derivation applied; None at the first one.
        settings: how the limit is derived; the defaults if None.
    """
    settings = settings or BudgetSettings()
    current = current or LimitInForce(declared, since=now)
    evidence = _evidence(list(samples), current, now, settings)
    target = _target(evidence, declared, settings)
    move = _move(evidence, target, current, now, settings)
    if settings.strategy is not Strategy.PHASE_DECOUPLED:
        move = _Move(declared, reasons.not_applied(settings.strategy))
    total_s = move.limit.total_seconds
    return BudgetProposal(
        bootstrap=evidence.bootstrap,
        execution=evidence.execution,
        counts=evidence.counts,
        window=evidence.window,
        has_drifted=evidence.has_drifted,
        clips_in_a_row=evidence.clips_in_a_row,
        declared=declared,
        proposed=target.limit if target else declared,
        applied=move.limit,
        changed_at=current.since if total_s == current.limit.total_seconds else now,
        only_proposed=target is not None and target.is_disputed,
        reasons=(move.reason, *_circumstances(evidence, target, declared, settings)),
    )


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The samples that count, and the estimates of both phases."""

    samples: list[AttemptSample]
    counts: SampleCounts
    window: timedelta
    has_drifted: bool
    clips_in_a_row: bool
    bootstrap: PhaseEstimate | None
    execution: PhaseEstimate | None


@dataclass(frozen=True, slots=True)
class _Target:
    """The limit that the evidence asks for.

    Args:
        limit: by the larger of both estimates.
        agreed: by the smaller one: both ask for so much.
        is_disputed: whether the estimates differ too much for the limit to be applied.
        is_refuted: whether the declared limit would clip too many, and so counts no more.
    """

    limit: Limit
    agreed: Limit
    is_disputed: bool
    is_refuted: bool


@dataclass(frozen=True, slots=True)
class _Move:
    """The limit of the next dispatch, and the sentence that says why."""

    limit: Limit
    reason: str


def _evidence(
    given: list[object], current: LimitInForce, now: datetime, settings: BudgetSettings
) -> _Evidence:
    """Return what counts: the samples of the long window, or after a drift of the short one."""
    real = believable(given, now)
    long = [one for one in real if one.ended_at > now - settings.window]
    short = [one for one in long if one.ended_at > now - settings.short_window]
    before = long[: len(long) - len(short)]
    drifted = any(
        has_drifted(observations(short, phase), observations(before, phase))
        for phase in (Phase.BOOTSTRAP, Phase.EXECUTION)
    )
    samples = short if drifted else long
    return _Evidence(
        samples=samples,
        counts=count(samples, dropped=len(given) - len(real)),
        window=settings.short_window if drifted else settings.window,
        has_drifted=drifted,
        clips_in_a_row=limits.clips_in_a_row(samples, current, settings),
        bootstrap=estimate(samples, Phase.BOOTSTRAP, settings),
        execution=estimate(samples, Phase.EXECUTION, settings),
    )


def _target(evidence: _Evidence, declared: Limit, settings: BudgetSettings) -> _Target | None:
    """Return the limit that the evidence asks for, or None where there is no estimate."""
    bootstrap, execution = evidence.bootstrap, evidence.execution
    if bootstrap is None or execution is None:
        return None
    refuted = limits.clips_too_many(declared, evidence.samples, settings.percentile)
    prior = None if refuted else declared
    asked, agreed = bootstrap.bound + execution.bound, bootstrap.agreed + execution.agreed
    return _Target(
        limit=_limit(bootstrap.bound, execution.bound, evidence, prior, settings),
        agreed=_limit(bootstrap.agreed, execution.agreed, evidence, prior, settings),
        is_disputed=asked > DISAGREEMENT * agreed,
        is_refuted=refuted,
    )


def _limit(
    bootstrap_s: float,
    execution_s: float,
    evidence: _Evidence,
    prior: Limit | None,
    settings: BudgetSettings,
) -> Limit:
    """Return the limit for these durations, by the formula, the prior and the longest success."""
    limit = limits.phase_decoupled(
        bootstrap_s,
        execution_s,
        max(settings.safety_buffer, settings.clean_up).total_seconds(),
        granularity_s=1,  # it is rounded up once, at the end
    )
    if prior is not None:
        limit = limits.with_prior(limit, prior, evidence.counts.learnt_from)
    if _is_small(evidence, settings):
        limit = limits.larger(limit, limits.above_the_longest(evidence.samples))
    return limits.on_the_ladder(limit, settings)


def _is_small(evidence: _Evidence, settings: BudgetSettings) -> bool:
    """Return whether the longest success may well be shorter than the percentile."""
    enough = limits.samples_for_the_longest(settings.percentile, settings.confidence)
    return evidence.counts.successes < enough


def _move(
    evidence: _Evidence,
    target: _Target | None,
    current: LimitInForce,
    now: datetime,
    settings: BudgetSettings,
) -> _Move:
    """Return the next limit: toward the target, or doubled after clips in a row."""
    move = _toward(target, current, now, settings)
    if not evidence.clips_in_a_row:
        return move
    doubled = limits.on_the_ladder(limits.doubled(current), settings)
    highest = limits.larger(move.limit, doubled)
    if highest.total_seconds <= current.limit.total_seconds:
        return _Move(highest, reasons.is_longest(highest))
    if highest == move.limit:
        return move
    return _Move(highest, reasons.doubled(current.limit, highest))


def _toward(
    target: _Target | None, current: LimitInForce, now: datetime, settings: BudgetSettings
) -> _Move:
    """Return the next limit on the way to the target: up at once, down slowly."""
    at = current.limit
    if target is None:
        return _Move(at, reasons.TOO_FEW)
    if target.is_disputed:
        highest = limits.larger(at, target.agreed)
        return _Move(highest, reasons.disputed(highest, target.limit))
    highest = limits.larger(at, target.limit)
    if highest != at:
        return _Move(highest, reasons.raised(at, highest))
    if target.limit.total_seconds == at.total_seconds:
        return _Move(at, reasons.stays(at))
    lower = limits.on_the_ladder(limits.lowered(target.limit, current, now, settings), settings)
    if lower.total_seconds >= at.total_seconds:  # rounded up, it is no lower yet
        return _Move(at, reasons.on_its_way(at, target.limit))
    return _Move(lower, reasons.lowered(at, lower, target.limit))


def _circumstances(
    evidence: _Evidence, target: _Target | None, declared: Limit, settings: BudgetSettings
) -> list[str]:
    """Return the sentences about the samples and the estimates."""
    found = [(Phase.BOOTSTRAP, evidence.bootstrap), (Phase.EXECUTION, evidence.execution)]
    said = [reasons.estimated(phase, one, settings) for phase, one in found if one is not None]
    if evidence.clips_in_a_row:
        said.append(reasons.CLIPS)
    if evidence.has_drifted:
        said.append(reasons.DRIFTED)
    if target is not None:
        counted = reasons.prior(declared, evidence.counts.learnt_from)
        said.append(reasons.REFUTED if target.is_refuted else counted)
        if _is_small(evidence, settings):
            said.append(reasons.SMALL)
    hanging = sum(one.tail_probe and one.outcome is Outcome.CLIPPED for one in evidence.samples)
    if hanging:
        said.append(reasons.hanging(hanging))
    if evidence.counts.dropped:
        said.append(reasons.dropped(evidence.counts.dropped))
    return said
