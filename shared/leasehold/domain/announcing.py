"""What people have to be told of a change to a run, and what each channel is owed then.

Derived here alone: whatever ends or blocks a run does it by a `Draft`, which asks.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.announcement import (
    URGENT,
    AnnouncedEvent,
    Announcement,
    Priority,
    next_occurrence,
)
from leasehold.domain.delivery import MAX_DETAIL, MAX_SUMMARY, Delivery, DeliveryState
from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.trace import run_mark

#: So long an announcement is tried.
GIVEN_UP_AFTER: Final = timedelta(hours=24)


def announced_event(before: Manifest, after: Manifest) -> AnnouncedEvent | None:
    """Return what people have to be told of a change; None: nothing."""
    if before.is_terminal:
        return None
    if after.cancelled:
        return AnnouncedEvent.RUN_CANCELLED
    if after.dead_lettered:
        return AnnouncedEvent.RUN_DEAD_LETTERED
    if after.status is RunStatus.COMPLETED:
        return AnnouncedEvent.RUN_COMPLETED
    is_new = before.block is None or before.dispatch.generation != after.dispatch.generation
    return AnnouncedEvent.RUN_BLOCKED if after.block is not None and is_new else None


def announcement_of(
    before: Manifest, after: Manifest, now: datetime, rules: Rules
) -> Announcement | None:
    """Return the announcement of a change; None: nobody is told of it."""
    event = announced_event(before, after)
    channels = () if event is None else rules.channels_for(after.pipeline, event)
    if event is None or not channels:
        return None
    occurrence = next_occurrence(before.announcement, after.fencing_token)
    return Announcement(occurrence=occurrence, event=event, at=now, channels=channels)


def deliveries_of(
    run: Manifest, grace: timedelta, give_up_after: timedelta = GIVEN_UP_AFTER
) -> tuple[Delivery, ...]:
    """Return what each channel is owed by the last announcement of a run, as it was made.

    Args:
        run: the run.
        grace: after that the sweep publishes the message of one that is not announced.
        give_up_after: so long it is tried.
    """
    told = run.announcement
    if told is None:
        return ()
    owed = (_delivery(run, told, channel, grace) for channel in told.channels)
    return tuple(one.with_(give_up_at=told.at + give_up_after) for one in owed)


def _delivery(run: Manifest, told: Announcement, channel: str, grace: timedelta) -> Delivery:
    block = run.block
    reason = run.dead_letter_reason or (None if block is None else block.code)
    detail = run.dead_letter_detail or (None if block is None else block.finding)
    return Delivery(
        run_id=run.run_id,
        occurrence=told.occurrence,
        channel=channel,
        pipeline=run.pipeline,
        event=told.event,
        priority=Priority.HIGH if told.event in URGENT else Priority.NORMAL,
        step=run.current_step,
        summary=_summary(run, told.event)[:MAX_SUMMARY],
        reason=None if reason is None else str(reason),
        detail=None if detail is None else detail[:MAX_DETAIL],
        mark=run_mark(run),
        state=DeliveryState.DUE,
        created_at=told.at,
        updated_at=told.at,
        alarm_at=told.at + grace,
        give_up_at=told.at + GIVEN_UP_AFTER,
    )


def _summary(run: Manifest, event: AnnouncedEvent | str) -> str:
    """Return what happened, as one plain line."""
    who = f"Run {run.run_id} of pipeline {run.pipeline}"
    at = f"at step {run.current_step}"
    if event == AnnouncedEvent.RUN_COMPLETED:
        return f"{who} is completed."
    if event == AnnouncedEvent.RUN_CANCELLED:
        return f"{who} was cancelled {at}."
    if event == AnnouncedEvent.RUN_DEAD_LETTERED:
        return f"{who} was given up {at}: {run.dead_letter_reason}."
    return f"{who} is blocked {at} and waits for a person: {run.block and run.block.code}."
