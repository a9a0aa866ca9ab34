"""A dispatch that nobody took in time: its task is lost, or waits in a long queue."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.change import Change, change_to, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.moving import dispatch_next
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.trace import TraceType, event_of


def redispatch(
    manifest: Manifest, now: datetime, *, rules: Rules, generation: int, in_queue: bool
) -> Change:
    """Give the step a new task, or come back later where the old one is still in its queue.

    A queue may refuse the name of a task for a day after it had it, so a lost task is replaced by
    one of the next generation.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch whose task was looked for.
        in_queue: whether it was found.
    """
    dispatch = manifest.dispatch
    is_due = manifest.alarm_at is not None and manifest.alarm_at <= now
    if not is_due or manifest.lease is not None or dispatch.generation != generation:
        return unchanged(manifest, Outcome.DUPLICATE)
    if in_queue or dispatch.remote:
        seen = dispatch.with_(seen_at=now, enqueued=in_queue)
        return change_to(manifest, now, rules, Outcome.PARKED, dispatch=seen)
    told = event_of(manifest, TraceType.STEP_REDISPATCHED, now, generation=generation)
    return dispatch_next(manifest, now, rules, Outcome.REDISPATCHED, told)
