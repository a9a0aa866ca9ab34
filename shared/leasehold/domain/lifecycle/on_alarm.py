"""What the alarm of a run calls for. The sweep does it, and `why` tells what it would be."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from leasehold.domain.alarm import alarm_for
from leasehold.domain.change import Change, change_to, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.mend import flaws, mend
from leasehold.domain.lifecycle.redispatch import redispatch
from leasehold.domain.lifecycle.settle import expire
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome


def on_alarm(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    generation: int,
    in_queue: bool | None,
    sweep_job_id: str | None = None,
) -> Change:
    """Recover the run, give it a new task, come back later, set it right, or give it up.

    One that is idle has an alarm because it owes something: the change has it published again.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch whose task was looked for.
        in_queue: whether it was found; None: it cannot be known.
        sweep_job_id: the sweep that looks.
    """
    if manifest.alarm_at is None or now < manifest.alarm_at:
        return unchanged(manifest, Outcome.NOT_DUE)
    if found := tuple(flaws(manifest, rules.grace)):
        mended = mend(manifest, now, rules, found)
        return then_on_alarm(
            mended,
            now,
            rules=rules,
            generation=generation,
            in_queue=in_queue,
            sweep_job_id=sweep_job_id,
        )
    wanted = alarm_for(manifest, rules.grace)
    if wanted is not None and now < wanted:  # it was set by a shorter grace
        return change_to(manifest, now, rules, Outcome.ALARM_SET)
    if manifest.lease is not None:
        lease_id = manifest.lease.lease_id
        return expire(manifest, now, rules=rules, lease_id=lease_id, sweep_job_id=sweep_job_id)
    if manifest.is_idle:
        return change_to(manifest, now, rules, Outcome.REPUBLISHED)
    return redispatch(
        manifest,
        now,
        rules=rules,
        generation=generation,
        in_queue=in_queue,
        sweep_job_id=sweep_job_id,
    )


def then_on_alarm(
    mended: Change,
    now: datetime,
    *,
    rules: Rules,
    generation: int,
    in_queue: bool | None,
    sweep_job_id: str | None = None,
) -> Change:
    """Follow a repair by what the alarm that it gave calls for, if that is due already."""
    then = on_alarm(
        mended.manifest,
        now,
        rules=rules,
        generation=generation,
        in_queue=in_queue,
        sweep_job_id=sweep_job_id,
    )
    return replace(then, events=mended.events + then.events) if then.changed else mended
