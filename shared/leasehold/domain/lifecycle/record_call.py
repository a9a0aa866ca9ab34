"""The result of a call that a handler had made once is recorded, for the attempts to come."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.calls import recorded_call, with_call
from leasehold.domain.change import Change, Draft
from leasehold.domain.dispatch import Rules
from leasehold.domain.kept_work import CallCount, CallResult
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.lifecycle.renewal import renewed
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.status import Outcome


def record_call(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    call: CallResult,
    in_place_of: str | None = None,
    notes: Notes = NO_NOTES,
) -> Change:
    """Record a result and count the call; the lease is renewed.

    A key that has a result keeps it: the same write twice is one call. A new one is progress:
    failures, interruptions, silences and continuations are counted anew from here. At the dispatch
    deadline the attempt is ended as by `renew`; the result is kept.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        call: the result, of the step and trial that the lease is for.
        in_place_of: the reference of the key's result, where that was found to be unreadable.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not the one that is held.
        TooManyCallsError: the manifest has no room for it. By reference it takes less.
    """
    held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules)
    draft.note(notes)
    found = recorded_call(manifest, call.key)
    if found is None or (found.ref is not None and found.ref == in_place_of):
        counts = draft.run.steps[manifest.position.step].calls or CallCount()
        draft.set_step(calls=counts.with_(made=counts.made + 1))
        draft.set_position(calls=with_call(manifest, call))
        if found is None:  # paid work that no attempt repeats is progress
            draft.count_anew()
        if call.ref is not None and not call.keep:
            draft.owe_folder()
    return renewed(draft, fence, Outcome.RENEWED)
