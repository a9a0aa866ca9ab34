"""One step as a display shows it: mark, time, progress, and what there is to say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Final

from leasehold.cli.formatting import SKULL, duration, one_line, style_of
from leasehold.domain.manifest import Manifest, StepRecord
from leasehold.domain.status import RunStatus

_MARKS: Final = {
    RunStatus.PENDING: "·",
    RunStatus.ERROR: "✗",
    RunStatus.BLOCKED: "■",
    RunStatus.COMPLETED: "✓",
}
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS_A_SECOND: Final = 10
_MAX_ERROR: Final = 200


@dataclass(frozen=True, slots=True)
class StepLine:
    """What a line shows; `fraction` is None where the handler said nothing."""

    mark: str
    style: str
    step: str
    began: bool
    elapsed: str
    fraction: float | None
    words: str
    error: str | None = None


def step_line(run: Manifest, step: str, now: datetime, *, worker: str | None) -> StepLine:
    """Return the line of a step.

    Args:
        run: the run.
        step: a step of its plan.
        now: the store's time.
        worker: how leases name this process; None: it works on no run.
    """
    record = run.steps[step]
    is_current = step == run.current_step and run.status is not RunStatus.COMPLETED
    running = is_current and run.lease is not None
    return StepLine(
        mark=_mark(run, record, now, is_current=is_current, running=running),
        style=style_of(record.status),
        step=step,
        began=record.started_at is not None or is_current,
        elapsed=_elapsed(run, record, now),
        fraction=_share(record.progress.fraction) if running and record.progress else None,
        words=_words(run, now, worker) if is_current else "",
        error=_error(run) if is_current else None,
    )


def _share(fraction: float) -> float:
    """Return a share of 1 that can be drawn, whatever a handler or a server said."""
    return min(1.0, max(0.0, fraction)) if isfinite(fraction) else 0.0


def _mark(
    run: Manifest, record: StepRecord, now: datetime, *, is_current: bool, running: bool
) -> str:
    if is_current and run.dead_lettered:
        return SKULL
    if running:
        return _SPINNER[int(now.timestamp() * _TURNS_A_SECOND) % len(_SPINNER)]
    return _MARKS.get(record.status, "·")


def _elapsed(run: Manifest, record: StepRecord, now: datetime) -> str:
    if record.started_at is None:
        return ""
    until = now if run.alarm_at is not None else run.updated_at
    return duration((record.completed_at or until) - record.started_at)


def _words(run: Manifest, now: datetime, worker: str | None) -> str:
    """Return what there is to say of the current step."""
    if run.lease is not None:
        said = run.steps[run.current_step].progress
        elsewhere = "" if run.lease.holder == worker else _held_elsewhere(run, now)
        attempt = f"attempt {run.attempt}" if run.attempt > 1 else ""
        share = f"{said.fraction:.0%}" if said else ""
        words = (share, one_line(said.message) if said else "", attempt, elsewhere)
        return "  ".join(word for word in words if word)
    if run.is_terminal or run.paused:
        return ""
    due = run.dispatch.not_before
    if due > now:
        return f"attempt {run.attempt} in {duration(due - now)}"
    waits = run.status is RunStatus.PENDING and worker is None
    return "waits for a worker" if waits else ""


def _held_elsewhere(run: Manifest, now: datetime) -> str:
    lease = run.lease
    assert lease is not None  # noqa: S101 - the caller looked
    return f"held by {lease.holder}, renewed or over in {duration(lease.expires_at - now)}"


def _error(run: Manifest) -> str | None:
    """Return the error or the finding that the run rests or waits on."""
    if run.block is not None:
        return one_line(f"{run.block.code}: {run.block.finding}", _MAX_ERROR)
    if run.status is not RunStatus.ERROR or run.error is None:
        return None
    return one_line(f"{run.error.type}: {run.error.message}", _MAX_ERROR)
