"""Dead letters: written once, never undone; a run can only be recreated."""

from __future__ import annotations

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.give_up_rules import Verdict
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunEvent, RunStatus, after
from leasehold.domain.trace import TraceType


def dead_letter(draft: Draft, verdict: Verdict, sweep_job_id: str | None = None) -> Change:
    """Give the run up, for good. A run that is terminal already stays as it is.

    Args:
        draft: the change so far.
        verdict: why.
        sweep_job_id: the sweep that gives it up; None: whoever worked on it.
    """
    if draft.before.is_terminal:
        return unchanged(draft.before, outcome_at_end(draft.before))
    run = draft.run
    draft.trace(
        TraceType.STEP_DEAD_LETTERED,
        reason=verdict.reason.value,
        detail=verdict.detail,
        last_step=run.position.step,
        retry_count=max(0, run.position.attempts.failed - 1),
        sweep_job_id=sweep_job_id,
    )
    draft.set(
        status=after(run.status, RunEvent.DEAD_LETTERED),
        steps=run.with_step(run.position.step, status=RunStatus.ERROR),
        paused=False,
        block=None,
        dead_lettered=True,
        dead_lettered_at=draft.now,
        dead_letter_reason=verdict.reason,
        dead_letter_detail=verdict.detail,
    )
    draft.set_position(lease=None)
    return draft.commit(Outcome.DEAD_LETTERED)


def outcome_at_end(manifest: Manifest) -> Outcome:
    """Return what whoever comes to a terminal run is answered."""
    if manifest.cancelled:
        return Outcome.CANCELLED
    return Outcome.DEAD_LETTERED if manifest.dead_lettered else Outcome.ALREADY_COMPLETED
