"""An outage puts an attempt off: it is nobody's failure, and counts for none.

Whoever has the lease defers the attempt; a remote worker that could not be given the step has none,
and then only the time that the step may wait to be claimed begins anew.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from leasehold.domain.change import Change, change_to, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.lifecycle.dead_letter import counted
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.lapse import termination
from leasehold.domain.lifecycle.settle import first_answer, settled
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import AttemptEnd, Outcome, RunEvent, RunStatus, Termination, after

_MAX_SAID: Final = 500


def defer(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    reason: Termination,
    detail: str,
) -> Change:
    """Release the lease of an attempt that met an outage; the next one waits for a backoff.

    It uses up no retry and no interruption, and no verdict asks how often it came to that. The
    wait grows with each deferral in a row.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: what the worker shows.
        reason: what could not be had.
        detail: the problem, for people.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    if first := first_answer(manifest, fence):
        return first
    lease = held_lease(manifest, now, fence)
    in_a_row = manifest.dispatch.deferred + 1
    update = counted(manifest, AttemptEnd.DEFERRED)
    record = update["steps"][manifest.current_step].with_(status=RunStatus.PENDING)
    update["steps"] = {**update["steps"], manifest.current_step: record}
    change = dispatch_next(
        manifest,
        now,
        rules,
        Outcome.RELEASED,
        termination(manifest, now, lease, reason, detail=detail[:_MAX_SAID]),
        wait=rules.backoff.wait(in_a_row),
        **update,
        status=after(manifest.status, RunEvent.LEASE_RELEASED),
        lease=None,
    )
    if change.manifest.dispatch.generation != manifest.dispatch.generation:
        dispatch = change.manifest.dispatch.with_(deferred=in_a_row)
        change = replace(change, manifest=change.manifest.with_(dispatch=dispatch))
    return settled(change, fence)


def extend_wait(manifest: Manifest, now: datetime, *, rules: Rules, generation: int) -> Change:
    """Let a step wait on to be claimed: a worker asked for it, and an outage kept it back.

    So the time that it may wait, `schedule_to_start`, is not used up by an outage. It is written
    at most once in each grace, however often workers ask.
    """
    dispatch = manifest.dispatch
    if manifest.claimable is None or dispatch.generation != generation:
        return unchanged(manifest, Outcome.MOVED_ON)
    if dispatch.seen_at is not None and now < dispatch.seen_at + rules.grace:
        return unchanged(manifest, Outcome.AWAITS_CLAIM)
    extended = dispatch.with_(seen_at=now)
    return change_to(manifest, now, rules, Outcome.AWAITS_CLAIM, dispatch=extended)
