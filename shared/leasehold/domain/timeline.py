"""The timeline of a run: what went as planned, derived from the manifest, among what was stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pydantic.alias_generators import to_camel

from leasehold.domain.checkpoint import CallCount
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import StepRecord, TrialRecord
from leasehold.domain.stored import replace
from leasehold.domain.trace import UNNUMBERED, TraceEvent, TraceType
from leasehold.domain.trials import trials_of

#: What an attempt without an output leaves. It comes after the start of its step, and before the
#: output of a later attempt, whatever the clock was.
_OF_ATTEMPTS: Final = (
    TraceType.STEP_ERROR,
    TraceType.STEP_TERMINATED,
    TraceType.STEP_CONTINUED,
    TraceType.CHECKPOINT_RESUMED,
    TraceType.CALL_UNCONFIRMED,
)

#: What can only follow the end of a run, and so all that went as planned.
_AFTER_END: Final = (TraceType.RUN_RECREATED, TraceType.ARCHIVE_FAILED)

#: What a reviewer leaves once the trials are over, whichever of them it names.
_AFTER_TRIALS: Final = (
    TraceType.AUTHOR_SLOT_REFUSED,
    TraceType.TRIAL_CHOSEN,
    TraceType.STEP_HANDED_OFF,
)


def timeline(manifest: Manifest, stored: Iterable[TraceEvent]) -> list[TraceEvent]:
    """Return all events of a run in the order in which they happened.

    Not simply by time: a clock may have been set back.

    Args:
        manifest: the run; what went as planned is derived from it.
        stored: what was stored, in the order of its names.
    """
    numbered: list[TraceEvent] = []
    others: list[TraceEvent] = []
    for event in stored:
        (others if event.type in UNNUMBERED else numbered).append(event)
    events = list(_merged(manifest, numbered))
    for other in others:  # it has no number, so only its time decides its place
        later = (place for place, event in enumerate(events) if event.at > other.at)
        events.insert(next(later, len(events)), other)
    return events


def _merged(manifest: Manifest, numbered: list[TraceEvent]) -> Iterator[TraceEvent]:
    """Yield what was planned and what was stored; each of them keeps its own order."""
    planned = deque(_planned(manifest))
    for event in numbered:
        while planned and _is_before(planned[0], event, manifest):
            yield planned.popleft()
        yield event
    yield from planned


def _is_before(planned: TraceEvent, stored: TraceEvent, run: Manifest) -> bool:
    """Return whether the planned event happened first; at one moment it did."""
    if planned.type is TraceType.RUN_STARTED or stored.type in _AFTER_END:
        return True
    place, other = _place(planned, run), _place(stored, run)
    if place and other and place != other:
        return place < other
    return _is_before_in_step(planned, stored)


def _is_before_in_step(planned: TraceEvent, stored: TraceEvent) -> bool:
    if stored.type is TraceType.AUTHOR_SLOT_OPENED:  # it began the trial
        return False
    if planned.type in (TraceType.STEP_HANDED_OFF, TraceType.RUN_COMPLETED):  # ends that step
        return False
    is_of_call = "call" in (stored.model_extra or {})  # which may have happened: the step goes on
    if stored.type in _OF_ATTEMPTS or is_of_call:
        return planned.type is TraceType.STEP_STARTED
    if stored.type in (TraceType.GATE_BLOCKED, TraceType.RUN_APPROVED):
        return planned.type is TraceType.STEP_STARTED or planned.attempt == stored.attempt
    return planned.at <= stored.at


def _place(event: TraceEvent, run: Manifest) -> tuple[int, ...]:
    """Return where in a run an event belongs, whatever the clock was; empty: its time says."""
    if event.step not in run.plan:
        return ()
    looped, place = run.looped_steps, run.plan.index(event.step)
    if event.step not in looped:
        return (place,)
    first, is_reviewer = run.plan.index(looped[0]), event.step == looped[-1]
    if is_reviewer and event.type in _AFTER_TRIALS:
        return (first, _last_trial(run) + 1, place)
    return (first, event.trial or 1, place)


def _last_trial(run: Manifest) -> int:
    return _trial_numbers(run)[-1]


def _trial_numbers(run: Manifest) -> list[int]:
    """Return the numbers of the trials that there are; a person who edits a run may write any."""
    return sorted({one.trial for step in run.looped_steps for one in trials_of(run.steps[step])})


def _planned(manifest: Manifest) -> Iterator[TraceEvent]:
    """Yield what went as planned; a recreated run took along what was done before it began."""
    steps = [*_planned_steps(manifest)]
    is_new = manifest.recreated_from is None
    kept = 0 if is_new else sum(event.at < manifest.created_at for event in steps)
    yield from steps[:kept]
    yield TraceEvent(type=TraceType.RUN_STARTED, at=manifest.created_at, detail=manifest.pipeline)
    yield from steps[kept:]
    if manifest.completed_at is not None:
        yield TraceEvent(type=TraceType.RUN_COMPLETED, at=manifest.completed_at)


def _planned_steps(manifest: Manifest) -> Iterator[TraceEvent]:
    if manifest.has_unjudged_output:  # its step is not completed yet: a gate may refuse it
        steps = {
            **manifest.steps,
            manifest.position.step: replace(
                manifest.steps[manifest.position.step], completed_at=None
            ),
        }
        manifest = replace(manifest, steps=steps)
    looped = manifest.looped_steps
    for step in manifest.plan:
        record = manifest.steps[step]
        if step not in looped:
            yield from _planned_of(step, record, record.attempts.ended, calls=record.calls)
        elif step == looped[0]:
            yield from _planned_trials(manifest, looped)
        if manifest.skipped is not None and record.handed_off_at is not None:
            detail = f"step {step} skipped to {record.skip_to}"
            for skipped in (one.step for one in manifest.skipped if one.by == step):
                yield TraceEvent(
                    type=TraceType.STEP_SKIPPED,
                    at=record.handed_off_at,
                    step=skipped,
                    detail=detail,
                )


def _planned_trials(manifest: Manifest, looped: tuple[str, ...]) -> Iterator[TraceEvent]:
    """Yield what went as planned in each trial; the reviewer hands off once all are over."""
    trials = {step: trials_of(manifest.steps[step]) for step in looped}
    handed_off = []
    for number in _trial_numbers(manifest):
        for step in looped:
            for record in (one for one in trials[step] if one.trial == number):
                is_whole = record is trials[step][-1]
                calls = manifest.steps[step].calls if is_whole else None
                for event in _planned_of(step, record, record.attempts_ended, number, calls):
                    is_last = step == looped[-1] and event.type is TraceType.STEP_HANDED_OFF
                    if is_last:
                        handed_off.append(event)
                    else:
                        yield event
    yield from handed_off


def _planned_of(
    step: str,
    record: StepRecord | TrialRecord,
    ended: int,
    trial: int = 1,
    calls: CallCount | None = None,
) -> Iterator[TraceEvent]:
    """Yield what went as planned of a step.

    Args:
        step: the step.
        record: what became of it.
        ended: how many attempts ended without an output that counts.
        trial: in which trial.
        calls: those that it made once, in all trials; None: shown with another one.
    """
    facts: dict[str, Any] = {"step": step, "trial": trial}
    for type_, at, attempt in (
        (TraceType.STEP_STARTED, record.started_at, 1),
        (TraceType.STEP_COMPLETED, record.completed_at, ended + 1),
        (TraceType.STEP_HANDED_OFF, record.handed_off_at, ended + 1),
    ):
        if at is None:
            continue
        further = _of_completion(record, calls) if type_ is TraceType.STEP_COMPLETED else {}
        yield TraceEvent.model_validate(
            {"type": type_, "at": at, "attempt": attempt, **facts, **further}
        )


def _of_completion(record: StepRecord | TrialRecord, calls: CallCount | None) -> dict[str, Any]:
    """Return the status of the output, how long both phases took, and the calls, if any."""
    status = {} if record.output_status is None else {"outputStatus": record.output_status}
    times = {
        to_camel(name): value
        for name in ("bootstrap_seconds", "execution_seconds", "cold_start", "first_tool")
        if (value := getattr(record, name)) is not None
    }
    counts = {} if calls is None else {"callsMade": calls.made, "callsSpared": calls.spared}
    return {**status, **times, **counts}
