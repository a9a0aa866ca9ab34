"""The action that an alarm of a run, or an audit, calls for. `why` previews what it would be."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from leasehold.domain.archive import tried_by_sweep
from leasehold.domain.change import Change, Draft, Transition, alarm_for, is_unattended, unchanged
from leasehold.domain.dispatch import Rules, has_moved
from leasehold.domain.effect import dispatch_task
from leasehold.domain.give_up_rules import verdict_on, verdict_on_wait
from leasehold.domain.lifecycle.block import block_unknown_step, look_again
from leasehold.domain.lifecycle.children import ask_again
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.hold import hold_at_alarm
from leasehold.domain.lifecycle.repair import breaches, flaws, flaws_at, repair
from leasehold.domain.lifecycle.settle import expire
from leasehold.domain.lifecycle.signal import time_out
from leasehold.domain.lifecycle.slots import wait_on
from leasehold.domain.lifecycle.termination import dead_letter
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Dispatch
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType

# A dispatch that no worker took in time: its task is lost, or waits in a long queue.
#
# A lost task counts against the run only while a process looks all the time: where a look comes
# so late that none was there before, the count begins anew.


def redispatch(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    generation: int,
    in_queue: bool | None,
    sweep_job_id: str | None = None,
    known_elsewhere: bool = False,
) -> Change:
    """Give the step a new task, or come back later where the old one is still in its queue.

    A queue may refuse the name of a task for a day after it had it, so a lost task is replaced by
    one of the next generation; a step whose tasks are lost again and again is given up, and so is
    one that no worker claimed in its time. A task of which nothing can be known may wait where only
    another process sees it: nothing is written of it, and the next process takes it as it is.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch whose task was looked for.
        in_queue: whether its queue has it; None: it cannot be known.
        sweep_job_id: the sweep that looked.
        known_elsewhere: whether a worker lives that knows a step which is not known here.
    """
    dispatch = manifest.position.dispatch
    is_due = manifest.alarm_at is not None and manifest.alarm_at <= now
    if (
        not is_due
        or manifest.is_idle
        or manifest.status is RunStatus.BLOCKED
        or manifest.position.lease is not None
        or manifest.is_resting
        or dispatch.generation != generation
    ):
        return unchanged(manifest, Outcome.MOVED_ON)
    draft = Draft(manifest, now, rules)
    settings = rules.settings_for(manifest.step_type)
    if settings is None:
        return _unknown(draft, in_queue) if known_elsewhere else block_unknown_step(draft)
    if has_moved(manifest, settings):  # what was lost on the way to others counts no more
        return _redispatch(draft, replace(dispatch, redispatched=0, lost_since=None))
    return _not_begun(draft, in_queue, sweep_job_id)


def _not_begun(draft: Draft, in_queue: bool | None, sweep_job_id: str | None) -> Change:
    """Count what was lost, or is not claimed; give the run up, or let the step wait on."""
    run, now, rules, is_late = draft.before, draft.now, draft.rules, _is_late(draft)
    is_queued = in_queue is not False and not run.position.dispatch.remote
    is_lost = in_queue is False and not run.position.dispatch.remote
    counted = _with_loss(run.position.dispatch, now, is_late) if is_lost else run.position.dispatch
    known = replace(run, position=replace(run.position, dispatch=counted))
    verdict = verdict_on(known, now, rules)
    if verdict is None and not (is_queued or is_late):
        verdict = verdict_on_wait(known, now, rules)
    if verdict is not None:
        return dead_letter(draft, verdict, sweep_job_id)
    if is_queued:
        return _still_queued(draft, in_queue)
    if counted.claim_by is not None:
        return _still_unclaimed(draft)
    return _redispatch(draft, counted)


def _is_late(draft: Draft) -> bool:
    """Return whether no process was there when the alarm of the run was due."""
    alarm_at = draft.before.alarm_at
    return alarm_at is not None and is_unattended(alarm_at, draft.now)


def _with_loss(dispatch: Dispatch, now: datetime, is_late: bool) -> Dispatch:
    """Return the dispatch with its task counted as lost; a late look begins the count anew."""
    if is_late:
        return replace(dispatch, redispatched=0, lost_since=now)
    lost = dispatch.redispatched + 1
    return replace(dispatch, redispatched=lost, lost_since=dispatch.lost_since or now)


def _redispatch(draft: Draft, lost: Dispatch) -> Change:
    """Give the step the task of the next generation."""
    draft.trace(TraceType.STEP_REDISPATCHED, generation=lost.generation)
    return dispatch_next(
        draft,
        Outcome.REDISPATCHED,
        redispatched=lost.redispatched,
        lost_since=lost.lost_since,
    )


def _unknown(draft: Draft, in_queue: bool | None) -> Change:
    """Leave a step to the workers that know it; a lost task is not their fault."""
    dispatch = draft.position.dispatch
    if in_queue is not False or dispatch.remote:
        return unchanged(draft.before, Outcome.STILL_QUEUED)
    return _redispatch(draft, dispatch)


def _still_queued(draft: Draft, in_queue: bool | None) -> Change:
    """Leave a task that waits, and note the time; take one of which nothing is known as it is."""
    if in_queue is None:
        return unchanged(draft.before, Outcome.STILL_QUEUED, dispatch_task(draft.before))
    dispatch = draft.position.dispatch
    draft.position = replace(
        draft.position,
        dispatch=replace(dispatch, seen_at=draft.now, enqueued=True, lost_since=None),
    )
    return draft.commit(Outcome.STILL_QUEUED)


def _still_unclaimed(draft: Draft) -> Change:
    """Let a remote step wait on; where no process was there to look, its time begins anew."""
    if _is_late(draft):
        draft.position = replace(
            draft.position, dispatch=replace(draft.position.dispatch, seen_at=draft.now)
        )
    return draft.commit(Outcome.AWAITS_CLAIM)


def not_created(
    manifest: Manifest, now: datetime, *, rules: Rules, generation: int, lost: int
) -> Change:
    """Take back that a task counts as lost whose successor could not be created.

    Its queue is down, so it is unknown whether it was ever there: an outage gives no run up.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch that has no task.
        lost: how many tasks counted as lost before.
    """
    dispatch = manifest.position.dispatch
    is_current = dispatch.generation == generation and not manifest.is_terminal
    if not is_current or dispatch.redispatched <= lost:
        return unchanged(manifest, Outcome.MOVED_ON)
    draft = Draft(manifest, now, rules)
    draft.position = replace(
        draft.position, dispatch=replace(dispatch, redispatched=lost, lost_since=None)
    )
    return draft.commit(Outcome.UNCOUNTED)


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
    waits = manifest.wait_until is not None or manifest.awaits_slot
    rests = manifest.is_resting or manifest.look_at is not None
    if manifest.is_idle or rests or waits:
        return _at_rest(manifest, now, rules)
    return hold_at_alarm(manifest, now, rules) or redispatch(
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
    """Look again at what it waits for, or end its wait; or publish again what an idle one owes.

    An archive that fails again waits longer.
    """
    if manifest.look_at is not None:
        return look_again(manifest, now, rules=rules)
    if manifest.wait_until is not None:
        return time_out(manifest, now, rules=rules)
    if manifest.is_resting and not manifest.is_idle:
        return ask_again(manifest, now, rules=rules)
    draft = Draft(manifest, now, rules)
    if manifest.awaits_slot:
        return wait_on(draft)
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
