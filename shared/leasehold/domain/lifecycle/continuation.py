"""An attempt that ends for the next one to go on: a step may take longer than any attempt may."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from leasehold.domain.change import Change, Draft
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.lifecycle.settle import end_attempt, fail_attempt, first_answer
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.status import AttemptEnd, Outcome
from leasehold.domain.trace import TraceType
from leasehold.errors import NoProgressError

#: With the third continuation in a row without a new iteration the attempt has failed.
MAX_IDLE_CONTINUATIONS: Final = 3

_ASKED: Final = "The handler asked for the next attempt to go on."
_SHORT: Final = (
    "The time of the attempt was short at a checkpoint; the next one goes on from there."
)


def continue_later(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    at_checkpoint: bool = False,
    notes: Notes = NO_NOTES,
) -> Change:
    """End the attempt; the next generation runs now, and no retry is used up.

    How often is bounded by progress alone: an attempt fails that is the third in a row to be
    continued since the step made progress, and so is each further one until it makes some.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        at_checkpoint: whether its time was short; else the handler asked for it.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    if first := first_answer(manifest, fence):
        return first
    lease = held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    count = manifest.position.continuations + 1
    draft.set_position(continuations=count)
    if count >= MAX_IDLE_CONTINUATIONS:
        return fail_attempt(draft, _no_progress(manifest, count))
    kept = manifest.position.checkpoint
    draft.trace(
        TraceType.STEP_CONTINUED,
        detail=_SHORT if at_checkpoint else _ASKED,
        holder=lease.holder,
        phase=None if kept is None else kept.phase,
        iteration_count=None if kept is None else kept.iteration_count,
    )
    return end_attempt(draft, AttemptEnd.CONTINUED, Outcome.CONTINUED)


def _no_progress(run: Manifest, count: int) -> ErrorRecord:
    return ErrorRecord.of(
        NoProgressError(
            step=run.position.step,
            attempt=run.position.attempt,
            count=count,
            timeout_s=run.position.dispatch.timeout_ms / 1000,
        )
    )
