"""One step of a run in one line: icon, time, progress, and what there is to say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Final

from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Attempts, Lease, StepRecord
from leasehold.domain.status import AttemptEnd, RunStatus
from leasehold.domain.trials import trial_words
from leasehold.presentation.formatting import duration, one_line
from leasehold.presentation.run_state import grade_of, overlay_of, status_icon, status_style

_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_TURNS_A_SECOND: Final = 10
_MAX_ERROR: Final = 200
_MAX_WORD: Final = 80


@dataclass(frozen=True, slots=True)
class StepLine:
    """What a line shows; `fraction` is None where the handler reported none."""

    icon: str
    style: str
    step: str
    began: bool
    elapsed: str
    fraction: float | None
    words: str = ""
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
    is_current = step == run.position.step and run.status is not RunStatus.COMPLETED
    is_running = is_current and run.position.lease is not None
    return StepLine(
        icon=_current_icon(run, now) if is_current else status_icon(record.status),
        style=status_style(record.status),
        step=step,
        began=record.started_at is not None or is_current,
        elapsed=_elapsed(run, record, now),
        fraction=_share(record.progress.fraction) if is_running and record.progress else None,
        words=_words(run, now, worker) if is_current else _ended_words(record),
        error=_error(run) if is_current else None,
    )


def _share(fraction: float) -> float:
    """Return a share of 1 that can be drawn, whatever a handler or a server reported."""
    return min(1.0, max(0.0, fraction)) if isfinite(fraction) else 0.0


def _current_icon(run: Manifest, now: datetime) -> str:
    if run.position.lease is not None:
        return _SPINNER[int(now.timestamp() * _TURNS_A_SECOND) % len(_SPINNER)]
    overlay = overlay_of(run)
    return status_icon(run.steps[run.position.step].status) if overlay is None else overlay.icon


def _elapsed(run: Manifest, record: StepRecord, now: datetime) -> str:
    if record.started_at is None:
        return ""
    until = now if run.is_moving else run.updated_at
    return duration((record.completed_at or until) - record.started_at)


def _words(run: Manifest, now: datetime, worker: str | None) -> str:
    """Return what there is to say of the current step."""
    if run.position.lease is not None:
        return _attempt_words(run, run.position.lease, now, worker)
    if run.is_terminal or run.paused:
        return ""
    due, trial = run.position.dispatch.not_before, trial_words(run)
    waits = run.status is RunStatus.PENDING and worker is None
    words = "waits for a worker" if waits else ""
    if due > now:
        words = f"attempt {run.position.attempt} in {duration(due - now)}"
    return "  ".join(filter(None, (trial, words)))


def _ended_words(record: StepRecord) -> str:
    """Return what there is to say of a step that is not the current one."""
    return "  ".join(filter(None, (grade_of(record), ended_attempts(record.attempts))))


def _attempt_words(run: Manifest, lease: Lease, now: datetime, worker: str | None) -> str:
    """Return what the handler reported, and who else works on the run."""
    left = duration(lease.expires_at - now)
    words = (
        reported(run),
        trial_words(run),
        attempt_words(run) if run.position.attempt > 1 else "",
        "" if lease.holder == worker else f"held by {lease.holder}, renewed or over in {left}",
    )
    return "  ".join(filter(None, words))


def reported(run: Manifest) -> str:
    """Return what the handler of the current step last said, and its last checkpoint."""
    progress, kept = run.steps[run.position.step].progress, run.position.checkpoint
    phase = f" of {one_line(kept.phase, _MAX_WORD)}" if kept and kept.phase else ""
    words = (
        f"{_share(progress.fraction):.0%}" if progress else "",
        one_line(progress.message, _MAX_WORD) if progress else "",
        f"checkpoint {kept.iteration_count}{phase}" if kept else "",
    )
    return ", ".join(filter(None, words))


def attempt_words(run: Manifest) -> str:
    """Return which attempt of the current step it is, and how those before it ended."""
    before = ended_attempts(run.position.attempts)
    return (
        f"attempt {run.position.attempt} ({before})"
        if before
        else f"attempt {run.position.attempt}"
    )


def ended_attempts(attempts: Attempts) -> str:
    """Return how attempts ended that gave no output: `2 failed, 1 continued`."""
    counts = ((getattr(attempts, end.value), end.value) for end in AttemptEnd)
    return ", ".join(f"{count} {cause}" for count, cause in counts if count)


def _error(run: Manifest) -> str | None:
    """Return the error or the finding that the run waits on."""
    if run.block is not None:
        return one_line(f"{run.block.code}: {run.block.finding}", _MAX_ERROR)
    if run.status is not RunStatus.ERROR or run.error is None:
        return None
    return one_line(f"{run.error.type}: {run.error.message}", _MAX_ERROR)
