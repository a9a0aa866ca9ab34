"""While an attempt runs: its lease is renewed, and what it has so far is kept."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules
from leasehold.domain.draft import Draft
from leasehold.domain.iterations import furthest_of, is_further
from leasehold.domain.lease import Fence, deadline_of, held_lease
from leasehold.domain.lifecycle.lapse import lapse
from leasehold.domain.lifecycle.settle import end_attempt
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Checkpoint, KeptValue, PhaseReached
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.status import Outcome, RunEvent, after


def renew(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    notes: Notes = NO_NOTES,
) -> Change:
    """Let the lease run on, at most to its cap, and keep the notes of the attempt.

    An attempt that is still at work at its dispatch deadline is ended in place of that: it failed.
    The lease is gone from the manifest then.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    draft = Draft(manifest, now, rules)
    draft.note(notes)
    return renewed(draft, fence, Outcome.RENEWED)


def checkpoint(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    iteration_count: int,
    phase: str,
    partial_results: KeptValue,
    notes: Notes = NO_NOTES,
) -> Change:
    """Keep what the attempt has so far, in place of what was kept before; the lease is renewed.

    At the dispatch deadline the attempt is ended as by `renew`; the checkpoint is kept.

    More iterations of a phase than ever before are progress: interruptions, silences and
    continuations are counted anew from here.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    draft = Draft(manifest, now, rules)
    draft.note(notes)
    furthest = furthest_of(manifest)
    if is_further(furthest, phase, iteration_count):
        furthest[phase] = iteration_count
        draft.set(interruptions=0, silences=0, continuations=0)
    kept = Checkpoint(
        step=manifest.current_step,
        trial=manifest.trial,
        phase=phase,
        iteration_count=iteration_count,
        inline=partial_results.text,
        ref=partial_results.ref,
        saved_at=now,
        fencing_token=manifest.fencing_token,
        furthest=tuple(
            PhaseReached(phase=name, iteration_count=count) for name, count in furthest.items()
        ),
    )
    draft.set(checkpoint=kept)
    return renewed(draft, fence, Outcome.CHECKPOINTED)


def renewed(draft: Draft, fence: Fence, outcome: Outcome) -> Change:
    """Let the lease run on from now; one without a heartbeat runs to its cap already.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    lease = held_lease(draft.before, draft.now, fence)
    if deadline_of(draft.before, lease) <= draft.now:
        draft.set(heartbeat_at=draft.now)
        return end_attempt(draft, lapse(draft, lease), Outcome.RETRY_SCHEDULED)
    expires_at = min(draft.now + draft.rules.lease_ttl, lease.max_expires_at)
    draft.set(
        status=after(draft.before.status, RunEvent.LEASE_RENEWED),
        lease=lease.with_(expires_at=max(lease.expires_at, expires_at)),
        heartbeat_at=draft.now,
    )
    return draft.commit(outcome)
