"""A dispatch that nobody took in time: its task is lost, or waits in a long queue."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from leasehold.domain.change import Change, change_to, unchanged
from leasehold.domain.dispatch import Rules, has_moved
from leasehold.domain.give_up_rules import verdict
from leasehold.domain.lifecycle.dead_letter import dead_letter
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.trace import TraceType, event_of


def redispatch(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    generation: int,
    in_queue: bool | None,
    sweep_job_id: str | None = None,
) -> Change:
    """Give the step a new task, or come back later where the old one is still in its queue.

    A queue may refuse the name of a task for a day after it had it, so a lost task is replaced by
    one of the next generation; a step whose tasks are lost again and again is given up. A task of
    which nothing can be known is taken to be there, and nothing is written of it: that is for
    whoever has its queue.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch whose task was looked for.
        in_queue: whether it was found; None: it cannot be known.
        sweep_job_id: the sweep that looked.
    """
    dispatch = manifest.dispatch
    is_due = manifest.alarm_at is not None and manifest.alarm_at <= now
    if not is_due or manifest.lease is not None or dispatch.generation != generation:
        return unchanged(manifest, Outcome.MOVED_ON)
    if has_moved(manifest, rules):  # what was lost on the way to others counts no more
        anew = manifest.with_(dispatch=dispatch.with_(redispatched=0))
        return _again(anew, now, rules, in_queue=True)
    if in_queue is False and _is_unknown(manifest, rules):
        return _again(manifest, now, rules, in_queue)
    lost = dispatch.redispatched + _is_lost(manifest, in_queue=in_queue)
    known = manifest.with_(dispatch=dispatch.with_(redispatched=lost))
    if found := verdict(known, now, rules):
        return dead_letter(manifest, now, rules, found, sweep_job_id=sweep_job_id)
    return _by_queue(manifest, now, rules, in_queue)


def not_created(
    manifest: Manifest, now: datetime, *, rules: Rules, generation: int, lost: int
) -> Change:
    """Take back that a task counts as lost whose successor could not be created.

    Its queue is away, so nobody knows that it was ever there: an outage gives no run up.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch that has no task.
        lost: how many tasks counted as lost before.
    """
    dispatch = manifest.dispatch
    is_current = dispatch.generation == generation and not manifest.is_terminal
    if not is_current or dispatch.redispatched <= lost:
        return unchanged(manifest, Outcome.MOVED_ON)
    known = dispatch.with_(redispatched=lost)
    return change_to(manifest, now, rules, Outcome.UNCOUNTED, dispatch=known)


def _by_queue(manifest: Manifest, now: datetime, rules: Rules, in_queue: bool | None) -> Change:
    """Replace a task that is lost; leave one that waits, or that nothing is known of."""
    if in_queue is None:
        return unchanged(manifest, Outcome.STILL_QUEUED)
    if in_queue:
        seen = manifest.dispatch.with_(seen_at=now, enqueued=True)
        return change_to(manifest, now, rules, Outcome.STILL_QUEUED, dispatch=seen)
    return _again(manifest, now, rules, in_queue)


def _is_unknown(manifest: Manifest, rules: Rules) -> bool:
    return rules.settings_for(manifest.current_step) is None


def _is_lost(manifest: Manifest, *, in_queue: bool | None) -> bool:
    """Return whether a task was lost; a step that workers elsewhere claim has none."""
    return in_queue is False and not manifest.dispatch.remote


def _again(manifest: Manifest, now: datetime, rules: Rules, in_queue: bool | None) -> Change:
    before = manifest.dispatch
    told = event_of(manifest, TraceType.STEP_REDISPATCHED, now, generation=before.generation)
    change = dispatch_next(manifest, now, rules, Outcome.REDISPATCHED, told)
    if change.outcome is not Outcome.REDISPATCHED:
        return change
    lost = before.redispatched + _is_lost(manifest, in_queue=in_queue)
    counted = change.manifest.dispatch.with_(redispatched=lost)
    return replace(change, manifest=change.manifest.with_(dispatch=counted))
