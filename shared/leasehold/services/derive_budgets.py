"""Derive the budget of each step from what its attempts took: the samples in, `budgets/{step}` out.

It may run at any time, and twice at once: the same samples give the same limits. A source that does
not answer leaves the last budget in force.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pydantic.alias_generators import to_camel

from leasehold.budgets import reasons
from leasehold.budgets.derive import derive_budget
from leasehold.budgets.proposal import (
    BudgetProposal,
    BudgetSettings,
    Limit,
    LimitInForce,
    PhaseEstimate,
    Strategy,
)
from leasehold.budgets.samples import AttemptSample, Outcome, SampleCounts, believable, outcome_of
from leasehold.domain.budget import (
    APPLIED,
    MAX_BUDGETS_READ,
    Budget,
    BudgetLimit,
    budget_of,
    budget_ref,
)
from leasehold.domain.deadlines import MIN_DEADLINE
from leasehold.domain.manifest import to_document
from leasehold.domain.stored import Document, UnreadableDocument, Write
from leasehold.domain.stored import replace as changed
from leasehold.domain.timestamps import time_of
from leasehold.errors import LeaseholdError, StoreUnavailableError, UnknownKeyError
from leasehold.frozen import dataclass
from leasehold.ports.documents import Query, Range
from leasehold.ports.sample_source import SampleSource
from leasehold.registry.dispatch import StepDispatchEntry, budget_cap
from leasehold.services.engine import Engine
from leasehold.services.reporting import Facts

#: So many documents are read for a step: its budget (in the list of all, before, and as it is
#: stored), and the newest entries of the ledger.
READS_A_STEP: Final = 1000
_ENTRIES: Final = READS_A_STEP - 3
#: The `event` of the line of a step whose last attempts were all clipped.
LIMIT_CLIPS: Final = "LIMIT_CLIPS"

_READ_WITHIN_S: Final = 20.0
#: What a clock that was ahead has left of the future takes no place of an entry of now.
_SOON: Final = timedelta(minutes=1)

#: A handler that is ended needs this long for its end to be recorded.
_TO_SETTLE: Final = timedelta(seconds=5)
#: A deploy that goes by its budgets derives them each hour.
_TWO_TURNS: Final = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Derived:
    """The result for one step.

    Args:
        step_type: the step.
        budget: its budget; None: the last one stays, if there is one.
        problem: why, in a sentence; empty: there is none.
        has_changed: whether another limit is applied than before.
    """

    step_type: str
    budget: Budget | None
    problem: str = ""
    has_changed: bool = False


@dataclass(frozen=True, slots=True)
class LedgerSamples:
    """The attempts of the runs that ended, as the ledger of a store has them."""

    engine: Engine

    def samples(self, step_type: str, since: datetime) -> Sequence[object]:
        """Return the attempts of a step, of the newest runs that ended since then.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        names = self.engine.catalog.names_of(step_type)
        query = Query(
            "ledger",
            contains=("stepTypes", step_type),
            range=Range(
                "endedAt", at_least=since, below=since + self.engine.budgets.window + _SOON
            ),
            order_by="endedAt",
            descending=True,
            limit=_ENTRIES,
            within=_READ_WITHIN_S,
            fields=tuple(f"steps.{name}" for name in names),
        )
        entries = [one.document for one in self.engine.documents.query(query)]
        steps = [
            step
            for entry in entries
            for name in names
            if (step := _step_of(entry, name)) and step.get("stepType", name) == step_type
        ]
        marks = any(step.get("firstTool") is not None for step in steps)
        return [sample for step in steps for sample in samples_of(step, marks=marks)]


def _step_of(entry: Document, name: str) -> Mapping[str, Any]:
    """Return the record of a step in an entry of the ledger, which a person may have edited."""
    steps = entry.get("steps")
    step = steps.get(name) if isinstance(steps, Mapping) else None
    is_read = not isinstance(entry, UnreadableDocument) and isinstance(step, Mapping)
    return step if is_read and step else {}


def samples_of(step: Mapping[str, Any], *, marks: bool) -> Iterator[AttemptSample]:
    """Yield the attempts of a step in an entry of the ledger, each with its part of the spend.

    Args:
        step: its record there.
        marks: whether its handler says where its bootstrap ends: an attempt that ended before it
            said so was at its bootstrap.
    """
    samples, usd = [*_attempts_of(step, marks=marks)], step.get("usd")
    try:
        a_second = usd / math.fsum(one.total_seconds for one in samples) if usd else 0.0
    except (ArithmeticError, TypeError, ValueError):  # edited by hand
        a_second = 0.0
    if not 0 < a_second < math.inf:
        yield from samples
        return
    for one in samples:
        yield replace(one, usd=a_second * one.total_seconds)


def _attempts_of(step: Mapping[str, Any], *, marks: bool) -> Iterator[AttemptSample]:
    earlier = step.get("earlierAttempts")
    earlier = earlier if isinstance(earlier, list | tuple) else ()
    attempts = [one for one in earlier if isinstance(one, Mapping)]
    for number, attempt in enumerate(attempts):
        sample = _sample(attempt, attempt.get("end"), attempt.get("at"), is_retried=number > 0)
        if sample is None:
            continue
        is_in_bootstrap = marks and attempt.get("firstTool") is None
        if is_in_bootstrap and sample.outcome is not Outcome.SUCCESS:
            sample = _at_bootstrap(sample)
        yield sample
    if sample := _sample(step, "completed", step.get("completedAt"), is_retried=bool(attempts)):
        yield sample


def _at_bootstrap(sample: AttemptSample) -> AttemptSample:
    """Return an attempt that ended before its first tool call: all of it was bootstrap."""
    try:
        seconds = sample.total_seconds
    except TypeError:  # edited by hand; the engine drops it
        return sample
    return replace(sample, bootstrap_seconds=seconds, execution_seconds=None)


def _sample(
    attempt: Mapping[str, Any], end: object, at: object, *, is_retried: bool
) -> AttemptSample | None:
    """Return one attempt; None: it says nothing of how long the step takes."""
    ended_at, outcome = time_of(at), outcome_of(end, attempt.get("reason"))
    execution = attempt.get("executionSeconds")
    if ended_at is None or outcome is None or execution is None:
        return None
    return AttemptSample(
        ended_at=ended_at,
        outcome=outcome,
        bootstrap_seconds=attempt.get("bootstrapSeconds") or 0.0,
        execution_seconds=execution,
        cold=attempt.get("coldStart") is True,
        retried=is_retried,
        tail_probe=attempt.get("tailProbe") is True,
    )


def derive_budgets(
    engine: Engine,
    source: SampleSource | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> list[Derived]:
    """Derive and store the budget of each step whose strategy is not `fixed`.

    Args:
        engine: the parts.
        source: of the durations; None: as the settings have it.
        is_over: as `derive_and_report` takes it.
    """
    source = source or _source(engine)
    return [_derive(engine, source, entry) for entry in _oldest_first(engine) if not is_over()]


def _oldest_first(engine: Engine) -> list[StepDispatchEntry]:
    """Return the steps to derive: those first whose turn did not come where a source is slow."""
    entries = [one for one in engine.catalog.steps if engine.strategy_of(one) is not Strategy.FIXED]
    if len(entries) > 1:
        with suppress(StoreUnavailableError):  # each step says so
            derived_at = {one.step_type: one.derived_at.timestamp() for one in read_budgets(engine)}
            entries.sort(key=lambda one: derived_at.get(one.step_type, 0.0))
    return entries


def explain_limit(engine: Engine, step_type: str) -> dict[str, Any]:
    """Return the budget of a step as it would be derived now, what is in force, and its attempts.

    Returns:
        JSON values, as `api/budgets.py` describes them; nothing is stored.

    Raises:
        UnknownKeyError: there is no such step.
        StoreUnavailableError, MetricsUnavailableError: the attempts cannot be read.
    """
    entry = engine.catalog.steps.get(step_type)
    if entry is None:
        known = ", ".join(engine.catalog.steps.keys())
        raise UnknownKeyError(registry="dispatch", key=step_type, known=known)
    settings = budget_settings(engine, entry)
    document, now = engine.documents.transact(budget_ref(step_type), _look).answer
    samples = _source(engine)(step_type, now - settings.window)
    last = _last(document)
    budget = _budget(entry, samples, now, last, settings)
    if _is_applied_elsewhere(last, settings.strategy, now):
        budget = changed(budget, reasons=(reasons.APPLIED_ELSEWHERE, *budget.reasons))
    in_force = engine.dispatch_rules().known_settings(step_type)
    return {
        "budget": budget,
        "settings": {
            "percentile": settings.percentile,
            "confidence": settings.confidence,
            "safetyBufferS": settings.safety_buffer.total_seconds(),
            "roundingGranularityS": settings.rounding_granularity.total_seconds(),
            "windowS": settings.window.total_seconds(),
            "shortestS": settings.shortest.total_seconds(),
            "longestS": settings.longest.total_seconds(),
        },
        "agentTimeoutS": {
            "value": in_force.agent_timeout.total_seconds(),
            "source": in_force.sources["agentTimeout"],
        },
        "dispatchDeadlineS": {
            "value": in_force.dispatch_deadline.total_seconds(),
            "source": in_force.sources["dispatchDeadline"],
        },
        "samples": [asdict(one) for one in believable(samples, now)],
        "samplesFrom": "ledger" if engine.samples is None else "prometheus",
    }


def read_budgets(engine: Engine) -> list[Budget]:
    """Return the budgets of the store that can be used, by their steps.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    found = engine.documents.query(Query("budgets", limit=MAX_BUDGETS_READ))
    return [budget for one in found if (budget := budget_of(one.document))]


def _source(engine: Engine) -> SampleSource:
    return engine.samples or LedgerSamples(engine).samples


def _last(document: Document | None) -> Budget | None:
    return None if document is None else budget_of(document)


def derive_and_report(engine: Engine, is_over: Callable[[], bool] = lambda: False) -> list[Derived]:
    """Derive and store the budgets, and log what changed and what went wrong.

    Args:
        engine: the parts.
        is_over: whether it is to end: no further step is derived then.
    """
    found = derive_budgets(engine, is_over=is_over)
    stay: dict[str, list[str]] = {}
    for one in found:
        if one.problem:
            stay.setdefault(one.problem, []).append(one.step_type)
        elif one.budget is not None and one.has_changed:
            limit = one.budget.applied.total_s
            words = f"step {one.step_type} has {limit:.0f} s from now on: {one.budget.reasons[0]}"
            engine.listeners.log(words)
        if one.budget is not None and one.budget.clips_in_a_row:
            engine.listeners.report(_line_of_clips(one.budget))
    for problem, steps in stay.items():  # a store that is away is one line
        engine.listeners.log(f"budgets stay as they are, of {', '.join(steps)}: {problem}")
    return found


def _line_of_clips(budget: Budget) -> Facts:
    """Return that a limit ends all attempts, as a structured line of the log: a hang, or a drift.

    A line a derivation, and not one a change: at the longest limit nothing changes any more.
    """
    limit = budget.applied.total_s
    return {
        "severity": "WARNING",
        "message": f"step {budget.step_type}: its limit clipped each of the last three attempts, "
        f"and is {limit:.0f} s from now on. Where they hang, no limit helps them.",
        "event": LIMIT_CLIPS,
        "step": budget.step_type,
        "limitS": limit,
        "detail": budget.reasons[0] if budget.reasons else None,
    }


def _derive(engine: Engine, source: SampleSource, entry: StepDispatchEntry) -> Derived:
    """Derive one budget; what goes wrong with it keeps no other step from its own."""
    ref = budget_ref(entry.step_type)
    settings = budget_settings(engine, entry)
    try:
        document, now = engine.documents.transact(ref, _look).answer
        samples = source(entry.step_type, now - settings.window)
        last = _last(document)
        if _is_applied_elsewhere(last, settings.strategy, now):
            return Derived(entry.step_type, None, reasons.APPLIED_ELSEWHERE)
        budget = _budget(entry, samples, now, last, settings)
        return engine.documents.transact(ref, partial(_put, budget)).answer
    except LeaseholdError as error:
        return Derived(entry.step_type, None, error.message)


def _look(document: Document | None, now: datetime) -> Write[tuple[Document | None, datetime]]:
    """Return what is stored, and the store's time; nothing is written."""
    return Write((document, now))


def _is_applied_elsewhere(last: Budget | None, strategy: str, now: datetime) -> bool:
    """Return whether another deploy goes by the budget that is stored, and this one would not.

    Each would undo what the other has learnt, once an hour. What is only proposed gives way; after
    a change of the strategy it is stored when the derivations of before are old.
    """
    if last is None or not last.strategy == APPLIED != strategy:
        return False
    return timedelta(0) <= now - last.derived_at < _TWO_TURNS


def _put(budget: Budget, before: Document | None, now: datetime) -> Write[Derived]:
    """Store the budget, unless the one that stands there by now is not to be replaced.

    All deploys are called at the same minute: another derivation may have stored its own meanwhile.
    """
    step, last = budget.step_type, _last(before)
    if _is_applied_elsewhere(last, budget.strategy, now):
        return Write(Derived(step, None, reasons.APPLIED_ELSEWHERE))
    if last is not None and budget.derived_at < last.derived_at <= now:
        return Write(Derived(step, budget))
    applied = budget.declared if last is None else last.applied
    derived = Derived(step, budget, has_changed=budget.applied != applied)
    return Write(derived, to_document(budget))


def budget_settings(engine: Engine, entry: StepDispatchEntry) -> BudgetSettings:
    """Return how the budget of a step is derived: the settings, on its part of the time ladder."""
    return replace(
        engine.budgets,
        strategy=engine.strategy_of(entry),
        shortest=MIN_DEADLINE,
        longest=budget_cap(entry, on_platform=engine.rules.on_platform),
        clean_up=entry.cleanup_ttl,
    )


def _budget(
    entry: StepDispatchEntry,
    samples: Sequence[object],
    now: datetime,
    last: Budget | None,
    settings: BudgetSettings,
) -> Budget:
    """Return the budget of a step from its samples and its last budget."""
    declared = Limit(entry.dispatch_deadline.total_seconds(), entry.agent_timeout.total_seconds())
    current = LimitInForce(declared, now, handler_seconds=declared.execution_seconds)
    if last is not None and last.strategy == settings.strategy == Strategy.PHASE_DECOUPLED:
        applied = Limit(last.applied.total_s, last.applied.execution_s)
        since = min(last.changed_at or last.derived_at, now)  # a clock may have been ahead
        current = LimitInForce(applied, since, handler_seconds=last.applied.timeout_s)
    found = derive_budget(samples, now=now, declared=declared, current=current, settings=settings)
    return Budget(
        step_type=entry.step_type,
        strategy=settings.strategy.value,
        derived_at=now,
        changed_at=found.changed_at,
        declared=_limit(declared, None),
        proposed=_limit(found.proposed, found),
        applied=_limit(found.applied, found if found.applied != declared else None),
        only_proposed=found.only_proposed,
        window_days=found.window / timedelta(days=1),
        has_drifted=found.has_drifted,
        clips_in_a_row=found.clips_in_a_row,
        counts=_named(found.counts),
        bootstrap=_phase(found.bootstrap),
        execution=_phase(found.execution),
        reasons=found.reasons,
    )


def _limit(limit: Limit, found: BudgetProposal | None) -> BudgetLimit:
    """Return a limit as it is stored; that of the handler leaves time for its bootstrap, too."""
    bootstrap = found.bootstrap.bound if found is not None and found.bootstrap else 0.0
    longest = limit.total_seconds - _TO_SETTLE.total_seconds()
    timeout = limit.execution_seconds
    if found is not None:
        timeout = max(1.0, min(limit.execution_seconds + bootstrap, longest))
    return BudgetLimit(
        total_s=limit.total_seconds,
        execution_s=round(limit.execution_seconds, 3),
        timeout_s=round(timeout, 3),
    )


def _phase(estimate: PhaseEstimate | None) -> dict[str, Any] | None:
    return None if estimate is None else _named(estimate)


def _named(part: PhaseEstimate | SampleCounts) -> dict[str, Any]:
    """Return its fields by names as all others that are stored and sent."""
    return {to_camel(name): value for name, value in asdict(part).items()}
