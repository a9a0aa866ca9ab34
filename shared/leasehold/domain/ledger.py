"""The ledger: what is known of an ended run for good, after the run itself is purged as well.

It has figures and names of the catalog, and nothing that a user or a handler wrote: no input, no
output, no labels, no error's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from pydantic import AwareDatetime

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import (
    NONE_ENDED,
    Attempts,
    EarlierAttempt,
    Place,
    StepRecord,
    TrialRecord,
)
from leasehold.domain.status import AttemptEnd
from leasehold.domain.stored import Ref, Stored, make

COMPLETED: Final = "completed"
CANCELLED: Final = "cancelled"
DEAD_LETTERED: Final = "dead_lettered"

_rounded: Final = partial(round, ndigits=3)  # seconds, to milliseconds
_ENDS: Final = tuple(end.value for end in AttemptEnd)


class StepEntry(Stored):
    """What one step took; see `LedgerEntry`. Its trials count together."""

    step_type: str | None = None  # None: its name
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    executing_s: float | None = None
    bootstrap_seconds: float | None = None
    execution_seconds: float | None = None
    cold_start: bool | None = None
    first_tool: str | None = None
    tail_probe: bool | None = None
    earlier_attempts: tuple[EarlierAttempt, ...] | None = None
    attempts: Mapping[str, int] = {}
    rejected_checkpoints: int | None = None
    usd: float | None = None


class LedgerEntry(Stored):
    """The end of a run in figures (`ledger/{runId}`). Each field's meaning: docs/ledger.md."""

    run_id: str
    pipeline: str
    outcome: str
    reason: str | None = None
    last_step: str
    created_at: AwareDatetime
    ended_at: AwareDatetime
    total_s: float
    waiting_s: float
    executing_s: float
    attempts: Mapping[str, int]
    retries: int
    continuations: int
    trials: int
    calls_made: int
    calls_spared: int
    rejected_checkpoints: int
    usd: float | None = None
    tokens: int | None = None
    spared_usd: float | None = None
    spared_tokens: int | None = None
    steps: Mapping[str, StepEntry]
    step_types: tuple[str, ...] = ()


def ledger_ref(run_id: str) -> Ref:
    """Return the name of a run's entry."""
    return Ref("ledger", run_id)


def ledger_of(run: Manifest) -> LedgerEntry:
    """Return the entry of an ended run: the same whenever it is asked for until it is archived."""
    ended_at = _ended_at(run)
    places = run.places or {}  # one with children has no attempt of its step: nothing to learn of
    plan = [name for name in run.plan if name not in places or not places[name].has_children]
    types = {name: _type_at(places[name], name) if name in places else name for name in plan}
    steps = {name: _step_entry(run.steps[name], name, types[name]) for name in plan}
    entries = steps.values()
    total_s = max(0.0, (ended_at - run.created_at).total_seconds())
    executing_s = min(total_s, sum([step.executing_s or 0.0 for step in entries]))
    attempts = _together([step.attempts for step in entries if step.attempts])
    spend, spared = run.spend.beyond(run.spent_before), run.spared
    calls = [each for name in run.plan if (each := run.steps[name].calls) is not None]
    return make(
        LedgerEntry,
        run_id=run.run_id,
        pipeline=run.pipeline,
        outcome=_outcome(run),
        reason=None if run.dead_letter_reason is None else str(run.dead_letter_reason),
        last_step=run.position.step,
        created_at=run.created_at,
        ended_at=ended_at,
        total_s=_rounded(total_s),
        waiting_s=_rounded(total_s - executing_s),
        executing_s=_rounded(executing_s),
        attempts=attempts,
        retries=_retries(run, attempts),
        continuations=attempts.get(AttemptEnd.CONTINUED.value, 0),
        trials=run.position.trial,
        calls_made=sum([each.made for each in calls]),
        calls_spared=sum([each.spared for each in calls]),
        rejected_checkpoints=sum([step.rejected_checkpoints or 0 for step in entries]),
        usd=spend.usd or None,
        tokens=spend.tokens or None,
        spared_usd=spared.usd or None,
        spared_tokens=spared.tokens or None,
        steps=steps,
        step_types=tuple(dict.fromkeys(types.values())),
    )


def _type_at(place: Place, name: str) -> str:
    return name if place.wait else place.step_type


def _outcome(run: Manifest) -> str:
    if run.cancelled:
        return CANCELLED
    return DEAD_LETTERED if run.dead_lettered else COMPLETED


def _ended_at(run: Manifest) -> datetime:
    noted = None if run.archive is None else run.archive.ended_at
    return noted or run.ended_at or run.updated_at


def _step_entry(record: StepRecord, name: str, step_type: str) -> StepEntry:
    started_at, executing_s, earlier = record.started_at, _took(record), record.earlier_attempts
    if record.trials:
        rounds: tuple[TrialRecord | StepRecord, ...] = (*record.trials, record)
        known = [took for one in rounds if (took := _took(one)) is not None]
        begun = [one.started_at for one in rounds if one.started_at is not None]
        started_at, executing_s = min(begun, default=None), sum(known) if known else None
        made = [_of_trial(one, one.completed_at) for one in record.trials if one.completed_at]
        earlier = (*(earlier or ()), *made) or None
    return make(
        StepEntry,
        step_type=None if step_type == name else step_type,
        started_at=started_at,
        completed_at=record.completed_at,
        executing_s=None if executing_s is None else _rounded(executing_s),
        bootstrap_seconds=record.bootstrap_seconds,
        execution_seconds=record.execution_seconds,
        cold_start=record.cold_start,
        first_tool=record.first_tool,
        tail_probe=record.tail_probe,
        earlier_attempts=earlier,
        attempts=_counted(record.attempts),
        rejected_checkpoints=record.rejected,
        usd=None if record.spend is None else record.spend.usd or None,
    )


def _took(record: StepRecord | TrialRecord) -> float | None:
    """Return how long the attempt took that made the output: both phases."""
    if record.execution_seconds is None:
        return None
    return (record.bootstrap_seconds or 0.0) + record.execution_seconds


def _of_trial(record: TrialRecord, completed_at: datetime) -> EarlierAttempt:
    """Return how long the attempt took that made the output of an earlier trial."""
    return EarlierAttempt(
        attempt=record.attempts_ended + 1,
        end=COMPLETED,
        at=completed_at,
        bootstrap_seconds=record.bootstrap_seconds,
        execution_seconds=record.execution_seconds,
        cold_start=record.cold_start,
        first_tool=record.first_tool,
    )


def _counted(attempts: Attempts) -> dict[str, int]:
    """Return how many attempts ended in each way in which any did: mostly none."""
    if attempts is NONE_ENDED:
        return {}
    counts = vars(attempts)
    return {end: count for end in _ENDS if (count := counts[end])}


def _together(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return how many attempts of all steps ended in each way in which any did."""
    if not counts:
        return {}
    present: set[str] = set().union(*counts)
    return {end: sum(each.get(end, 0) for each in counts) for end in _ENDS if end in present}


def _retries(run: Manifest, attempts: Mapping[str, int]) -> int:
    """Return how many attempts followed a failed one: all failures but one that ended the run."""
    failed = attempts.get(AttemptEnd.FAILED.value, 0)
    gave_up = run.dead_lettered and run.position.attempts.failed > 0
    return failed - gave_up
