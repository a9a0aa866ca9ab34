"""The action that an alarm of a run, or an audit, calls for. `why` previews what it would be."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from leasehold.domain.archive import tried_by_sweep
from leasehold.domain.change import Change, Draft, Transition, alarm_for, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.block import look_again
from leasehold.domain.lifecycle.redispatch import redispatch
from leasehold.domain.lifecycle.repair import breaches, flaws, flaws_at, repair
from leasehold.domain.lifecycle.settle import expire
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace


def on_alarm(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    generation: int,
    in_queue: bool | None,
    sweep_job_id: str | None = None,
    known_elsewhere: bool = False,
) -> Change:
    """Recover the run, give it a new task, come back later, repair it, or give it up.

    One that is idle has an alarm because it owes something: the change has it published again.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch whose task was looked for.
        in_queue: whether its queue has it; None: it cannot be known.
        sweep_job_id: the sweep that looks.
        known_elsewhere: whether a worker lives that knows a step which is not known here.
    """
    if manifest.alarm_at is None or now < manifest.alarm_at:
        return unchanged(manifest, Outcome.NOT_DUE)
    if broken := tuple(flaws(manifest, rules.grace)):
        at_alarm = partial(
            on_alarm,
            rules=rules,
            generation=generation,
            in_queue=in_queue,
            sweep_job_id=sweep_job_id,
            known_elsewhere=known_elsewhere,
        )
        return _followed(repair(manifest, now, rules, broken), at_alarm, now)
    wanted = alarm_for(manifest, rules.grace)
    if wanted is not None and now < wanted:  # it was set by a shorter grace
        return Draft(manifest, now, rules).commit(Outcome.ALARM_SET)
    if manifest.position.lease is not None:
        lease_id = manifest.position.lease.lease_id
        return expire(manifest, now, rules=rules, lease_id=lease_id, sweep_job_id=sweep_job_id)
    if manifest.is_idle or manifest.look_at is not None:
        return _at_rest(manifest, now, rules)
    return redispatch(
        manifest,
        now,
        rules=rules,
        generation=generation,
        in_queue=in_queue,
        sweep_job_id=sweep_job_id,
        known_elsewhere=known_elsewhere,
    )


def on_audit(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    generation: int,
    in_queue: bool | None,
    known_elsewhere: bool = False,
) -> Change:
    """Repair the run, and do what is overdue; one that is in order stays as it is.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch whose task was looked for.
        in_queue: whether its queue has it; None: it cannot be known.
        known_elsewhere: whether a worker lives that knows a step which is not known here.
    """
    at_alarm = partial(
        on_alarm,
        rules=rules,
        generation=generation,
        in_queue=in_queue,
        known_elsewhere=known_elsewhere,
    )
    if broken := (*flaws(manifest, rules.grace), *flaws_at(manifest, now)):
        return _followed(repair(manifest, now, rules, broken), at_alarm, now)
    if any(breaches(manifest, now, rules)):
        return at_alarm(manifest, now)
    return unchanged(manifest, Outcome.IN_ORDER)


def announce_pending(manifest: Manifest, now: datetime, *, rules: Rules) -> Change:
    """Owe the last announcement to its channels, where who ended the run had no catalog."""
    told = manifest.announcement
    if told is None or not told.pending:
        return unchanged(manifest, Outcome.MOVED_ON)
    return Draft(manifest, now, rules).commit(Outcome.REPUBLISHED)


def _at_rest(manifest: Manifest, now: datetime, rules: Rules) -> Change:
    """Look again at what blocks the run; or have published again what an idle one owes.

    An archive that fails again waits longer.
    """
    if manifest.look_at is not None:
        return look_again(manifest, now, rules=rules)
    draft = Draft(manifest, now, rules)
    run = draft.run
    if run.is_terminal and run.archive is not None:
        draft.run = replace(
            draft.run, archive=tried_by_sweep(run.archive, draft.now, draft.rules.grace)
        )
    return draft.commit(Outcome.REPUBLISHED)


def _followed(repaired: Change, at_alarm: Transition, now: datetime) -> Change:
    """Return a repair and what the alarm that it set calls for, if that is due already."""
    then = at_alarm(repaired.manifest, now)
    return then.following(repaired) if then.changed else repaired
