"""A run that waits for a slot or for its turn: it has no lease, and is called when it is next."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence, own_lease
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.settle import first_answer
from leasehold.domain.limit import Bound
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.retry import doubling
from leasehold.domain.slots import FIRST_SLOT_LOOK, MAX_SLOT_LOOK, SlotWait
from leasehold.domain.status import Outcome, RunEvent, RunStatus, after
from leasehold.domain.stored import make, replace

_SLOT_LOOKS: Final = doubling(FIRST_SLOT_LOOK, MAX_SLOT_LOOK)


def await_slot(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    bound: Bound,
    group: str = "",
    notes: Notes = NO_NOTES,
) -> Change:
    """Release the lease of an attempt that did not begin: its run waits until it is called.

    It counts as no attempt, and the next one has its number. A run that waited before keeps its
    place by its age.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        bound: what it waits for.
        group: of the runs that share its other limits.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not that of the run any more.
    """
    if first := first_answer(manifest, fence):
        return first
    own_lease(manifest, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    before = draft.position.slot_wait
    wait = make(
        SlotWait,
        limit=bound.limit.key,
        key=bound.key,
        rate=bound.is_rate,
        most=bound.most,
        group=group,
        since=now if before is None else before.since,
        look_at=now + _SLOT_LOOKS.wait(1),
    )
    draft.run = replace(draft.run, status=after(manifest.status, RunEvent.LEASE_RELEASED))
    draft.step = replace(draft.step, status=RunStatus.PENDING)
    draft.position = replace(
        draft.position,
        lease=None,
        dispatch=draft.position.dispatch.under_next_generation,
        slot_wait=wait,
    )
    if not draft.position.attempts.ended:  # it has not begun
        draft.step = replace(draft.step, started_at=None)
        draft.position = replace(draft.position, step_started_at=None)
    return draft.commit(Outcome.AWAITS_SLOT)


def call_run(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    name: str,
    slot: int | None = None,
    wait: timedelta = timedelta(),
    leads: bool = False,
) -> Change:
    """Dispatch a run that waits in the line of this name; any other stays as it is.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        name: of the line.
        slot: the slot that is free; None: which one is not known, or it has its turn.
        wait: until its turn.
        leads: whether it then calls others.
    """
    before = manifest.position.slot_wait
    if not manifest.awaits_slot or before is None or before.name != name:
        return unchanged(manifest, Outcome.MOVED_ON)
    draft = Draft(manifest, now, rules)
    called = replace(before, called=True, slot=slot, leads=leads)
    draft.position = replace(draft.position, slot_wait=called)
    return dispatch_next(draft, Outcome.CALLED, wait=wait)


def wait_on(draft: Draft) -> Change:
    """Let a run wait on that was looked at: who looks sees whether its limit has room."""
    before = draft.position.slot_wait
    assert before is not None  # noqa: S101 - who asks has seen it
    looks = before.looks + 1
    wait = replace(before, looks=looks, look_at=draft.now + _SLOT_LOOKS.wait(looks + 1))
    draft.position = replace(draft.position, slot_wait=wait)
    return draft.commit(Outcome.AWAITS_SLOT)
