"""Dead letters: written once, never undone; a run can only be recreated."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from leasehold.domain.change import Change, change_to, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import (
    AttemptEnd,
    DeadLetterReason,
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
    reason: DeadLetterReason,
    detail: str,
    *events: TraceEvent,
    **update: Any,
) -> Change:
    """Give the run up, for good. A run that is terminal already stays as it is."""
    if manifest.is_terminal:
        return unchanged(manifest, outcome_at_end(manifest))
    told = event_of(
        manifest,
        TraceType.STEP_DEAD_LETTERED,
        now,
        reason=reason.value,
        detail=detail,
        retry_count=max(0, manifest.with_(**update).attempts.failed - 1),
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
        dead_letter_reason=reason,
        dead_letter_detail=detail,
    )


def outcome_at_end(manifest: Manifest) -> Outcome:
    """Return what whoever comes to a terminal run is answered."""
    if manifest.cancelled:
        return Outcome.CANCELLED
    return Outcome.DEAD_LETTERED if manifest.dead_lettered else Outcome.DUPLICATE


def counted(manifest: Manifest, end: AttemptEnd) -> dict[str, Any]:
    """Return the update that counts one more end of an attempt, for the step and in total."""
    record = manifest.steps[manifest.current_step]
    cut_short = end in (AttemptEnd.INTERRUPTED, AttemptEnd.EXPIRED)
    return {
        "attempts": manifest.attempts.plus(end),
        "interruptions": manifest.interruptions + cut_short,
        "steps": manifest.with_step(manifest.current_step, attempts=record.attempts.plus(end)),
    }


def out_of_interruptions(manifest: Manifest, rules: Rules) -> str | None:
    """Return why one more interruption or expiry is too many, or None."""
    ended = manifest.interruptions + 1
    if ended <= rules.max_interruptions:
        return None
    return (
        f"Step {manifest.current_step} was interrupted or lost its lease {ended} times "
        f"without progress; at most {rules.max_interruptions} are allowed."
    )
