"""A remote worker claims a step: it gets the lease, or the reason why there is none to have."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.change import Change, Draft
from leasehold.domain.dispatch import Rules
from leasehold.domain.give_up_rules import verdict_on
from leasehold.domain.lifecycle.attempt import EARLY, acquire, acquired_before, take_over
from leasehold.domain.lifecycle.dead_letter import dead_letter
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunEvent, RunStatus
from leasehold.errors import LeaseHeldError, NothingToClaimError


def claim(manifest: Manifest, now: datetime, *, rules: Rules, lease_id: str, holder: str) -> Change:
    """Give the lease on the current step to a worker that has no hint.

    An expired lease is taken over, which counts as one that expired, and may be one too many: the
    change is `dead_lettered` then. Where the attempt before hung, it failed, and the next one is
    due after its backoff: `retry_scheduled`. No claim comes too late while the run waits.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        lease_id: the name of the lease, new for each call.
        holder: the worker that claims it.

    Raises:
        LeaseHeldError: somebody holds the lease.
        NothingToClaimError: the run waits for no worker now; its state says for what.
    """
    draft = Draft(manifest, now, rules)
    if known := acquired_before(draft, lease_id):
        return known
    lease = manifest.position.lease
    if lease is not None and now < lease.expires_at:
        raise LeaseHeldError(
            run_id=manifest.run_id, holder=lease.holder, expires_at=lease.expires_at.isoformat()
        )
    if problem := _problem(manifest, now, rules):
        raise NothingToClaimError(problem=problem, run_id=manifest.run_id, state=manifest.state)
    if lease is not None:
        return take_over(draft, lease, lease_id=lease_id, holder=holder)
    if verdict := verdict_on(manifest, now, rules):
        return dead_letter(draft, verdict)
    return acquire(draft, RunEvent.LEASE_ACQUIRED, lease_id=lease_id, holder=holder)


def _problem(manifest: Manifest, now: datetime, rules: Rules) -> str | None:
    """Return why the run has no step to be taken now, or None."""
    if manifest.is_terminal or manifest.paused or manifest.status is RunStatus.BLOCKED:
        return f"run {manifest.run_id} is {manifest.state}"
    if rules.settings_for(manifest.position.step) is None:
        return f"this deploy knows no step {manifest.position.step!r}"
    if manifest.position.dispatch.provisional:
        return f"run {manifest.run_id} came from a worker that did not know its step; claim again"
    due = manifest.position.dispatch.not_before
    if manifest.position.lease is None and now + EARLY < due:
        return f"run {manifest.run_id} is tried again at {due.isoformat()}"
    return None
