"""The eager hand-off: whoever hands a step off takes the next one's lease in the same commit."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from leasehold.domain.change import Change, Transition
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.attempt import arrive
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome


def then_arrive(settle: Transition, *, rules: Rules, lease_id: str, holder: str) -> Transition:
    """Return `settle`, followed at once by the arrival of the hint that its hand-off owes.

    A worker that would take that hint from its own queue a moment later saves the task, a
    transaction and its sync. The next step is dispatched as always, with its own generation,
    lease and token, and waits for nobody only because its worker is already there.
    """

    def both(manifest: Manifest, now: datetime) -> Change:
        settled = settle(manifest, now)
        if not settled.changed or settled.outcome is not Outcome.HANDED_OFF:
            return settled
        arrived = arrive(
            settled.manifest,
            now,
            rules=rules,
            generation=settled.manifest.dispatch.generation,
            lease_id=lease_id,
            holder=holder,
        )
        if arrived.outcome is not Outcome.ACQUIRED:
            return settled
        events = settled.events + arrived.events
        return replace(arrived, outcome=Outcome.HANDED_OFF, events=events)

    return both
