"""The eager hand-off: who starts a run or hands a step off takes the lease in the same commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeVar

from leasehold.domain.change import Change, Draft
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import lease_for
from leasehold.domain.lifecycle.attempt import give_lease, may_begin
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunEvent

Before = TypeVar("Before", Manifest, Manifest | None)

#: What dispatches an attempt that the same worker may take at once.
_DISPATCHES: Final = (Outcome.STARTED, Outcome.HANDED_OFF, Outcome.CONTINUED)


def then_arrive(
    first: Callable[[Before, datetime], Change], *, rules: Rules, lease_id: str, holder: str
) -> Callable[[Before, datetime], Change]:
    """Return a start or settlement, followed at once by the arrival of the hint that it owes.

    A worker that would take that hint from its own queue a moment later saves the task, a
    transaction and its sync. The next step is dispatched as always, with its own generation,
    lease and token, and waits for nobody only because its worker is already there.
    """

    def both(manifest: Before, now: datetime) -> Change:
        change = first(manifest, now)
        if change.outcome not in _DISPATCHES:
            return change
        if not change.changed:
            return _again(Draft(change.manifest, now, rules), lease_id, change)
        if not may_begin(change.manifest, now, rules):
            return change
        draft = Draft(manifest or change.manifest, now, rules)
        draft.run = change.manifest  # nobody else has it yet: it is changed in its place
        give_lease(draft, RunEvent.LEASE_ACQUIRED, lease_id=lease_id, holder=holder)
        return draft.added_to(change)

    return both


def _again(draft: Draft, lease_id: str, answer: Change) -> Change:
    """Return the first answer; with the lease that came with it, if nobody has taken that over.

    The answer was lost, so nobody has begun the step: its lease runs from now, as after an answer.
    """
    run, lease = draft.run, draft.run.position.lease
    if lease is None or lease.lease_id != lease_id:
        return answer
    ttl = draft.rules.lease_ttl
    draft.set_position(
        lease=lease_for(run, draft.now, lease_id=lease_id, holder=lease.holder, ttl=ttl),
        heartbeat_at=draft.now,
    )
    return draft.commit(answer.outcome)
