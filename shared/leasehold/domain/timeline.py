"""The timeline of a run: what went as planned, derived from the manifest, among what was stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import StepRecord
from leasehold.domain.trace import TraceEvent, TraceType

#: What an attempt without an output leaves. It comes after the start of its step, and before the
#: output of a later attempt, whatever the clock was.
_OF_ATTEMPTS: Final = (
    TraceType.STEP_ERROR,
    TraceType.STEP_TERMINATED,
    TraceType.STEP_CONTINUED,
    TraceType.CHECKPOINT_RESUMED,
)


def timeline(manifest: Manifest, stored: Iterable[TraceEvent]) -> list[TraceEvent]:
    """Return all events of a run in the order in which they happened.

    Not simply by time: a clock may have been set back.

    Args:
        manifest: the run; what went as planned is derived from it.
        stored: what was stored, in the order of its names.
    """
    numbered: list[TraceEvent] = []
    losses: list[TraceEvent] = []
    for event in stored:
        (losses if event.type is TraceType.LEASE_LOST else numbered).append(event)
    events = list(_merged(manifest, numbered))
    for loss in losses:  # it has no number, so only its time decides its place
        later = (place for place, event in enumerate(events) if event.at > loss.at)
        events.insert(next(later, len(events)), loss)
    return events


def _merged(manifest: Manifest, numbered: list[TraceEvent]) -> Iterator[TraceEvent]:
    """Yield what was planned and what was stored; each of them keeps its own order."""
    planned = deque(_planned(manifest))
    for event in numbered:
        while planned and _is_before(planned[0], event, manifest.plan):
            yield planned.popleft()
        yield event
    yield from planned


def _is_before(planned: TraceEvent, stored: TraceEvent, plan: tuple[str, ...]) -> bool:
    """Return whether the planned event happened first; at one moment it did."""
    if planned.type is TraceType.RUN_STARTED:
        return True
    if planned.step != stored.step and planned.step in plan and stored.step in plan:
        return plan.index(planned.step) < plan.index(stored.step)
    if planned.type in (TraceType.STEP_HANDED_OFF, TraceType.RUN_COMPLETED):  # ends that step
        return stored.type is TraceType.RUN_RECREATED
    if stored.type in _OF_ATTEMPTS:
        return planned.type is TraceType.STEP_STARTED
    if stored.type in (TraceType.GATE_BLOCKED, TraceType.RUN_APPROVED):
        return planned.type is TraceType.STEP_STARTED or planned.attempt == stored.attempt
    return planned.at <= stored.at


def _planned(manifest: Manifest) -> Iterator[TraceEvent]:
    """Yield what went as planned; a recreated run took along what was done before it began."""
    steps = [event for step in manifest.plan for event in _planned_of(step, manifest.steps[step])]
    is_new = manifest.recreated_from is None
    kept = 0 if is_new else sum(event.at < manifest.created_at for event in steps)
    yield from steps[:kept]
    yield TraceEvent(type=TraceType.RUN_STARTED, at=manifest.created_at, detail=manifest.pipeline)
    yield from steps[kept:]
    if manifest.completed_at is not None:
        yield TraceEvent(type=TraceType.RUN_COMPLETED, at=manifest.completed_at)


def _planned_of(step: str, record: StepRecord) -> Iterator[TraceEvent]:
    for type_, at in (
        (TraceType.STEP_STARTED, record.started_at),
        (TraceType.STEP_COMPLETED, record.completed_at),
        (TraceType.STEP_HANDED_OFF, record.handed_off_at),
    ):
        if at is not None:
            attempt = _attempt(type_, record)
            yield TraceEvent(type=type_, at=at, step=step, attempt=attempt, **_calls(type_, record))


def _attempt(type_: TraceType, record: StepRecord) -> int:
    return 1 if type_ is TraceType.STEP_STARTED else record.attempts.ended + 1


def _calls(type_: TraceType, record: StepRecord) -> dict[str, int]:
    """Return how many calls the step made once, and how many it was spared, where it made any."""
    if type_ is not TraceType.STEP_COMPLETED or record.calls is None:
        return {}
    return {"callsMade": record.calls.made, "callsSpared": record.calls.spared}
