"""Leases: how long they run, and who may still write under one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Lease
from leasehold.domain.redaction import masked
from leasehold.domain.stored import make
from leasehold.errors import LeaseLostError

#: A lease outlives the dispatch deadline by this, so that an answer in time finds it valid.
LEASE_MARGIN: Final = timedelta(minutes=5)


class Fence(NamedTuple):
    """What a worker presents with each write: its lease and the token that came with it."""

    lease_id: str
    fencing_token: int


def fence_of(manifest: Manifest) -> Fence:
    """Return what the holder of the lease presents that the run has."""
    lease = manifest.position.lease
    assert lease is not None  # noqa: S101 - who asks has just given it
    return Fence(lease.lease_id, manifest.fencing_token)


def compute_lease_ttl(dispatch_deadline: timedelta) -> timedelta:
    """Return the cap of a lease: how long it may run, with all its renewals."""
    return dispatch_deadline + LEASE_MARGIN


def lease_for(
    manifest: Manifest, now: datetime, *, lease_id: str, holder: str, ttl: timedelta
) -> Lease:
    """Return a lease on the dispatch of the manifest; without a heartbeat it runs to its cap."""
    cap = compute_lease_ttl(timedelta(seconds=manifest.position.dispatch.deadline_s))
    runs = cap if manifest.position.dispatch.heartbeat_s is None else min(ttl, cap)
    return make(
        Lease,
        lease_id=lease_id,
        holder=holder,
        acquired_at=now,
        expires_at=now + runs,
        max_expires_at=now + cap,
    )


def held_lease(manifest: Manifest, now: datetime, fence: Fence) -> Lease:
    """Return the lease if `fence` still holds it, or raise LeaseLostError with the facts."""
    lease = own_lease(manifest, fence)
    if lease.expires_at <= now:
        raise _lost(manifest, fence, f"it ended at {lease.expires_at.isoformat()}")
    return lease


def own_lease(manifest: Manifest, fence: Fence) -> Lease:
    """Return the lease if it is still that of `fence`, even if it is over; or raise as above."""
    lease = manifest.position.lease
    if lease is None:
        raise _lost(manifest, fence, f"the run has no lease, it is {manifest.state}")
    if lease.lease_id != fence.lease_id or manifest.fencing_token != fence.fencing_token:
        raise _lost(
            manifest, fence, f"it is held by {lease.holder}, token {manifest.fencing_token}"
        )
    return lease


def deadline_of(manifest: Manifest, lease: Lease) -> datetime:
    """Return the dispatch deadline of the attempt under the lease."""
    return lease.acquired_at + timedelta(seconds=manifest.position.dispatch.deadline_s)


def is_past_deadline(manifest: Manifest, lease: Lease) -> bool:
    """Return whether the worker was heard of when its dispatch deadline was over, or later.

    Then it hung, or was too slow. One that fell silent before was lost, whenever its lease ends.
    """
    heard_at = manifest.position.heartbeat_at
    return heard_at is not None and deadline_of(manifest, lease) <= heard_at


def ended_at_deadline(manifest: Manifest, fence: Fence, *, kept: str = "") -> LeaseLostError:
    """Return the answer to a worker if its renewal or checkpoint ended its attempt.

    Args:
        manifest: the run, afterwards.
        fence: the credentials of the worker.
        kept: what was kept of the call; empty: nothing.
    """
    step = manifest.position.step
    known = f"the attempt was still at work at the dispatch deadline of step {step}, and failed"
    effect = f"{kept or 'The attempt is ended.'} The run is {manifest.state}."
    return _lost(manifest, fence, known, effect=effect, overran=True)


def is_silent(manifest: Manifest, now: datetime, rules: Rules, lease: Lease) -> bool:
    """Return whether nothing was heard of the worker for longer than anything explains.

    A lease that is over is ended by the next sweep, so there may have been no sweep either. For a
    paused run it does not matter, because nothing waits for it.
    """
    heard_at = manifest.position.heartbeat_at or lease.acquired_at
    expected_by = max(heard_at + rules.stuck_timeout, lease.expires_at)
    return not manifest.paused and now > expected_by + rules.grace


def _lost(manifest: Manifest, fence: Fence, known: str, **facts: Any) -> LeaseLostError:
    lease = manifest.position.lease
    return LeaseLostError(
        lease_id=masked(fence.lease_id),
        run_id=manifest.run_id,
        known=known,
        state=manifest.state,
        fencing_token=manifest.fencing_token,
        holder=None if lease is None else lease.holder,
        expires_at=None if lease is None else lease.expires_at.isoformat(),
        cancelled=manifest.cancelled,
        **facts,
    )
