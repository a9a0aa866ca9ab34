"""The eager hand-off: who starts a run or hands a step off takes the lease in the same commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, TypeVar

from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.attempt import arrive
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome

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
        if not change.changed or change.outcome not in _DISPATCHES:
            return change
        arrived = arrive(
            change.manifest,
            now,
            rules=rules,
            generation=change.manifest.dispatch.generation,
            lease_id=lease_id,
            holder=holder,
        )
        if arrived.outcome is not Outcome.ACQUIRED:
            return change
        return arrived.following(change, change.outcome)

    return both
