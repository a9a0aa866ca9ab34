"""A dispatch that nobody took in time: its task is lost, or waits in a long queue."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.change import Change, unchanged
from leasehold.domain.dispatch import Rules, has_moved
from leasehold.domain.draft import Draft
from leasehold.domain.give_up_rules import verdict_on
from leasehold.domain.lifecycle.dead_letter import dead_letter
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.trace import TraceType


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
        in_queue: whether its queue has it; None: it cannot be known.
        sweep_job_id: the sweep that looked.
    """
    dispatch = manifest.dispatch
    is_due = manifest.alarm_at is not None and manifest.alarm_at <= now
    if (
        not is_due
        or manifest.is_idle
        or manifest.lease is not None
        or dispatch.generation != generation
    ):
        return unchanged(manifest, Outcome.MOVED_ON)
    draft = Draft(manifest, now, rules)
    moved = has_moved(manifest, rules)
    # what was lost on the way to others counts no more, and a step for remote workers has no task
    lost = 0 if moved else dispatch.redispatched + (in_queue is False and not dispatch.remote)
    unknown = in_queue is False and rules.settings_for(manifest.current_step) is None
    if not (moved or unknown):
        known = manifest.with_(dispatch=dispatch.with_(redispatched=lost))
        if verdict := verdict_on(known, now, rules):
            return dead_letter(draft, verdict, sweep_job_id)
        if in_queue is not False:
            return _still_queued(draft, in_queue)
    draft.trace(TraceType.STEP_REDISPATCHED, generation=generation)
    return dispatch_next(draft, Outcome.REDISPATCHED, redispatched=lost)


def _still_queued(draft: Draft, in_queue: bool | None) -> Change:
    """Leave a task that waits, or that nothing is known of; note the time of one that is there."""
    if in_queue is None:
        return unchanged(draft.before, Outcome.STILL_QUEUED)
    draft.set(dispatch=draft.run.dispatch.with_(seen_at=draft.now, enqueued=True))
    return draft.commit(Outcome.STILL_QUEUED)


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
    draft = Draft(manifest, now, rules)
    draft.set(dispatch=dispatch.with_(redispatched=lost))
    return draft.commit(Outcome.UNCOUNTED)
