"""An outage puts an attempt off: it is nobody's failure, and counts for none.

Whoever has the lease defers the attempt; a remote worker that could not be given the step has none,
and then only the time that the step may wait to be claimed begins anew.
"""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence, own_lease
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.settle import first_answer
from leasehold.domain.lifecycle.termination import trace_termination
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.status import AttemptEnd, Outcome, RunEvent, RunStatus, Termination, after


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
    long as nobody has taken the run over, its holder says why it ended.

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
    draft.set_step(status=RunStatus.PENDING)
    draft.set(status=after(manifest.status, RunEvent.LEASE_RELEASED))
    draft.set_position(lease=None)
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
    draft.set_position(dispatch=dispatch.with_(seen_at=now))
    return draft.commit(Outcome.AWAITS_CLAIM)
