"""An attempt that ends for the next one to go on: a step may take longer than any attempt may."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence, held_lease, own_lease
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.settle import end_attempt, fail_attempt, first_answer
from leasehold.domain.lifecycle.termination import trace_termination
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.status import AttemptEnd, Outcome, RunEvent, RunStatus, Termination, after
from leasehold.domain.stored import replace
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
    draft.position = replace(draft.position, continuations=count)
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


# An outage puts an attempt off: it is no one's failure, and counts for none.
#
# The holder of the lease defers the attempt; a remote worker that could not be given the step has
# none, and then only the time that the step may wait to be claimed begins anew.


def defer(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    reason: Termination,
    detail: str,
    notes: Notes = NO_NOTES,
) -> Change:
    """Release the lease of an attempt that met an outage; the next one waits for a backoff.

    It uses up no retry and no interruption, and no verdict counts how often that happens. The
    wait grows with each deferral in a row. A store that was away may have outlasted the lease: as
    long as no one has taken the run over, its holder says why it ended.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        reason: what could not be had.
        detail: the problem, for people.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not that of the run any more.
    """
    if first := first_answer(manifest, fence):
        return first
    lease = own_lease(manifest, fence)
    in_a_row = manifest.position.dispatch.deferred + 1
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    draft.owe_folder()  # a file may be there whose store did not say so
    trace_termination(draft, lease, reason, detail)
    draft.count(AttemptEnd.DEFERRED)
    draft.step = replace(draft.step, status=RunStatus.PENDING)
    draft.run = replace(draft.run, status=after(manifest.status, RunEvent.LEASE_RELEASED))
    draft.position = replace(draft.position, lease=None)
    wait = rules.backoff.wait(in_a_row)
    return dispatch_next(draft, Outcome.RELEASED, wait=wait, deferred=in_a_row)


def extend_wait(manifest: Manifest, now: datetime, *, rules: Rules, generation: int) -> Change:
    """Let a step wait on to be claimed: a worker wanted it, and an outage kept it back.

    So the time that it may wait, `schedule_to_start`, is not used up by an outage. It is written
    at most once in each grace, however often workers claim.
    """
    dispatch = manifest.position.dispatch
    if manifest.claimable is None or dispatch.generation != generation:
        return unchanged(manifest, Outcome.MOVED_ON)
    if dispatch.seen_at is not None and now < dispatch.seen_at + rules.grace:
        return unchanged(manifest, Outcome.AWAITS_CLAIM)
    draft = Draft(manifest, now, rules)
    draft.position = replace(draft.position, dispatch=replace(dispatch, seen_at=now))
    return draft.commit(Outcome.AWAITS_CLAIM)
