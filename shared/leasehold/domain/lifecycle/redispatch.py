"""A dispatch that nobody took in time: its task is lost, or waits in a long queue."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.change import Change, change_to, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.lifecycle.ending import dead_letter
from leasehold.domain.lifecycle.moving import dispatch_next
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import DeadLetterReason, Outcome
from leasehold.domain.trace import TraceType, event_of


def redispatch(
    manifest: Manifest, now: datetime, *, rules: Rules, generation: int, in_queue: bool
) -> Change:
    """Give the step a new task, or come back later where the old one is still in its queue.

    A queue may refuse the name of a task for a day after it had it, so a lost task is replaced by
    one of the next generation. A step that is to be claimed elsewhere and was not is given up.

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
    if in_queue:
        seen = dispatch.with_(seen_at=now, enqueued=True)
        return change_to(manifest, now, rules, Outcome.PARKED, dispatch=seen)
    settings = rules.settings_for(manifest.current_step)
    waited = dispatch.schedule_to_start_s  # None: dispatched before steps could be claimed
    if waited is not None and settings is not None and settings.remote:
        reason = DeadLetterReason.NEVER_STARTED
        detail = f"No worker claimed step {manifest.current_step} within {waited} s."
        return dead_letter(manifest, now, rules, reason, detail)
    told = event_of(manifest, TraceType.STEP_REDISPATCHED, now, generation=generation)
    return dispatch_next(manifest, now, rules, Outcome.REDISPATCHED, told)
