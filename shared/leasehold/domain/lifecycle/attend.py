"""What the alarm of a run calls for. The sweep does it, and `why` tells what it would be."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.change import Change, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.redispatch import redispatch
from leasehold.domain.lifecycle.settle import expire
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome


def attend(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    generation: int,
    in_queue: bool,
    sweep_job_id: str | None = None,
) -> Change:
    """Recover the run, give it a new task, come back later, or give it up.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch whose task was looked for.
        in_queue: whether it was found.
        sweep_job_id: the sweep that looks.
    """
    if manifest.alarm_at is None or now < manifest.alarm_at:
        return unchanged(manifest, Outcome.DUPLICATE)
    if manifest.lease is not None:
        lease_id = manifest.lease.lease_id
        return expire(manifest, now, rules=rules, lease_id=lease_id, sweep_job_id=sweep_job_id)
    return redispatch(
        manifest,
        now,
        rules=rules,
        generation=generation,
        in_queue=in_queue,
        sweep_job_id=sweep_job_id,
    )
