"""Dead letters: written once, never undone; a run can only be recreated."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from leasehold.domain.change import Change, change_to, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.give_up_rules import Verdict
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import (
    AttemptEnd,
    Outcome,
    RunEvent,
    RunStatus,
    after,
)
from leasehold.domain.trace import TraceEvent, TraceType, event_of


def dead_letter(
    manifest: Manifest,
    now: datetime,
    rules: Rules,
    found: Verdict,
    *events: TraceEvent,
    sweep_job_id: str | None = None,
    **update: Any,
) -> Change:
    """Give the run up, for good. A run that is terminal already stays as it is.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        found: why.
        events: told before.
        sweep_job_id: the sweep that found it; None: whoever worked on it.
        update: what else changes.
    """
    if manifest.is_terminal:
        return unchanged(manifest, outcome_at_end(manifest))
    told = event_of(
        manifest,
        TraceType.STEP_DEAD_LETTERED,
        now,
        reason=found.reason.value,
        detail=found.detail,
        last_step=manifest.current_step,
        retry_count=max(0, manifest.with_(**update).attempts.failed - 1),
        sweep_job_id=sweep_job_id,
    )
    steps = update.pop("steps", manifest.steps)
    ended = steps[manifest.current_step].with_(status=RunStatus.ERROR)
    return change_to(
        manifest,
        now,
        rules,
        Outcome.DEAD_LETTERED,
        *events,
        told,
        **update,
        status=after(manifest.status, RunEvent.DEAD_LETTERED),
        steps={**steps, manifest.current_step: ended},
        lease=None,
        paused=False,
        block=None,
        dead_lettered=True,
        dead_lettered_at=now,
        dead_letter_reason=found.reason,
        dead_letter_detail=found.detail,
    )


def outcome_at_end(manifest: Manifest) -> Outcome:
    """Return what whoever comes to a terminal run is answered."""
    if manifest.cancelled:
        return Outcome.CANCELLED
    return Outcome.DEAD_LETTERED if manifest.dead_lettered else Outcome.ALREADY_COMPLETED


def counted(manifest: Manifest, end: AttemptEnd) -> dict[str, Any]:
    """Return the update that counts one more end of an attempt, for the step and in total."""
    record = manifest.steps[manifest.current_step]
    cut_short = end in (AttemptEnd.INTERRUPTED, AttemptEnd.EXPIRED)
    return {
        "attempts": manifest.attempts.plus(end),
        "interruptions": manifest.interruptions + cut_short,
        "steps": manifest.with_step(manifest.current_step, attempts=record.attempts.plus(end)),
    }
