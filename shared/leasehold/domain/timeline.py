"""The timeline of a run: what went as planned, told from the manifest, among what was stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from leasehold.domain.manifest import Manifest, StepRecord
from leasehold.domain.trace import TraceEvent, TraceType


def timeline(manifest: Manifest, stored: Iterable[TraceEvent]) -> list[TraceEvent]:
    """Return all events of a run, oldest first; at one moment planned ones come as they must."""
    return sorted([*_planned(manifest), *stored], key=lambda event: event.at)


def _planned(manifest: Manifest) -> Iterator[TraceEvent]:
    yield TraceEvent(type=TraceType.RUN_STARTED, at=manifest.created_at, detail=manifest.pipeline)
    for step in manifest.plan:
        yield from _planned_of(step, manifest.steps[step])
    if manifest.completed_at is not None:
        yield TraceEvent(type=TraceType.RUN_COMPLETED, at=manifest.completed_at)


def _planned_of(step: str, record: StepRecord) -> Iterator[TraceEvent]:
    for type_, at in (
        (TraceType.STEP_STARTED, record.started_at),
        (TraceType.STEP_COMPLETED, record.completed_at),
        (TraceType.STEP_HANDED_OFF, record.handed_off_at),
    ):
        if at is not None:
            yield TraceEvent(type=type_, at=at, step=step, attempt=_attempt(type_, record))


def _attempt(type_: TraceType, record: StepRecord) -> int:
    return 1 if type_ is TraceType.STEP_STARTED else record.attempts.ended + 1
