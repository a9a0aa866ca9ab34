"""The announcements of a change to a run, and the deliveries to its channels.

Derived here alone: whatever ends or blocks a run does it by a `Draft`, which asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.announcement import (
    URGENT,
    AnnouncedEvent,
    Announcement,
    Priority,
    next_occurrence,
)
from leasehold.domain.delivery import (
    MAX_DELIVERY_DETAIL_CHARS,
    MAX_DELIVERY_REASON_CHARS,
    MAX_OUTPUT_SUMMARY_CHARS,
    MAX_SUMMARY_CHARS,
    Delivery,
    DeliveryState,
)
from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import Manifest
from leasehold.domain.printable import one_line
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceEvent, TraceType, run_mark

#: So long an announcement is tried.
GIVEN_UP_AFTER: Final = timedelta(hours=24)


def state_event(run: Manifest) -> AnnouncedEvent | None:
    """Return what people have to know of a run as it stands; None: it goes on by itself."""
    if run.cancelled:
        return AnnouncedEvent.RUN_CANCELLED
    if run.dead_lettered:
        return AnnouncedEvent.RUN_DEAD_LETTERED
    if run.status is RunStatus.COMPLETED:
        return AnnouncedEvent.RUN_COMPLETED
    return AnnouncedEvent.RUN_BLOCKED if run.status is RunStatus.BLOCKED else None


def announced_event(before: Manifest, after: Manifest) -> AnnouncedEvent | None:
    """Return the event of a change that is announced; None: nothing.

    A run ends once. It may block again and again, each time under its own generation; a
    block that is found again is the one that was announced.
    """
    event = state_event(after)
    if event is None or before.is_terminal:
        return None
    if event is not AnnouncedEvent.RUN_BLOCKED:
        return event
    is_found_again = after.block is not None and after.block.looks > 0
    is_same_block = (
        before.status is RunStatus.BLOCKED
        and before.position.dispatch.generation == after.position.dispatch.generation
    )
    return None if is_found_again or is_same_block else event


def announcement_of(
    before: Manifest, after: Manifest, events: Sequence[TraceEvent], now: datetime, rules: Rules
) -> Announcement | None:
    """Return the announcement of a change; None: there is none.

    One that no channel gets counts, where there was another one before: no two of a run
    have one occurrence.
    """
    event = announced_event(before, after)
    if event is None:
        return None if after.announcement is None else _caught_up(after, now, rules)
    channels = rules.channels_for(after.pipeline, event)
    if channels == () and before.announcement is None:
        return None
    return Announcement(
        occurrence=next_occurrence(before.announcement, after.fencing_token),
        event=event,
        at=now,
        channels=channels or (),
        detail=_request_in(events),
        pending=channels is None,
    )


def _caught_up(run: Manifest, now: datetime, rules: Rules) -> Announcement | None:
    """Return the announcement of who had no catalog, now that there is one; None: nothing is."""
    told = run.announcement
    if told is None or not told.pending:
        return None
    event = state_event(run)
    if event is None or told.event != event:
        return None
    channels = rules.channels_for(run.pipeline, event)
    return None if channels is None else replace(told, at=now, channels=channels, pending=False)


def deliveries_of(
    run: Manifest, grace: timedelta, give_up_after: timedelta = GIVEN_UP_AFTER
) -> tuple[Delivery, ...]:
    """Return what each channel is owed by the last announcement of a run, as it was made.

    Args:
        run: the run, which did not move on since.
        grace: after that the sweep publishes the message of one that is not announced.
        give_up_after: so long it is tried.
    """
    told = run.announcement
    if told is None:
        return ()
    owed = (_delivery(run, told, channel, grace) for channel in told.channels)
    return tuple(replace(one, give_up_at=told.at + give_up_after) for one in owed)


def _delivery(run: Manifest, told: Announcement, channel: str, grace: timedelta) -> Delivery:
    reason, detail = _why(run, told)
    return Delivery(
        run_id=run.run_id,
        occurrence=told.occurrence,
        channel=channel,
        pipeline=run.pipeline,
        event=told.event,
        priority=Priority.HIGH if told.event in URGENT else Priority.NORMAL,
        step=run.position.step,
        summary=_summary(run, told.event, reason, detail),
        reason=reason,
        detail=detail,
        signal=None if (wait := run.waits_for) is None else wait.name,
        mark=run_mark(run),
        traceparent=run.traceparent,
        state=DeliveryState.DUE,
        created_at=told.at,
        updated_at=told.at,
        alarm_at=told.at + grace,
        give_up_at=told.at + GIVEN_UP_AFTER,
    )


def _why(run: Manifest, told: Announcement) -> tuple[str | None, str | None]:
    """Return why it came to that, for machines and for people; each is one line, safe to show."""
    reason: str | None = None
    detail = told.detail
    if told.event == AnnouncedEvent.RUN_DEAD_LETTERED:
        reason, detail = run.dead_letter_reason, run.dead_letter_detail
    elif told.event == AnnouncedEvent.RUN_BLOCKED and run.block is not None:
        reason, detail = run.block.code, run.block.finding
    return (
        None if reason is None else one_line(str(reason), MAX_DELIVERY_REASON_CHARS),
        None if detail is None else one_line(detail, MAX_DELIVERY_DETAIL_CHARS),
    )


def _summary(
    run: Manifest, event: AnnouncedEvent | str, reason: str | None, detail: str | None
) -> str:
    """Return who came to what, where and why, or what the author says of an output: one line."""
    who = f"Run {run.run_id} of pipeline {run.pipeline}"
    at = f"at step {run.position.step}"
    why = "".join(f": {part}" for part in (reason, detail) if part)
    cost = f" ({words})" if (words := run.cost_words) else ""
    if event == AnnouncedEvent.RUN_COMPLETED and (summary := run.steps[run.plan[-1]].summary):
        return one_line(f"{summary}{cost}", MAX_OUTPUT_SUMMARY_CHARS)
    if event == AnnouncedEvent.RUN_COMPLETED:
        line = f"{who} is completed{cost}."
    elif event == AnnouncedEvent.RUN_CANCELLED:
        line = f"{who} was cancelled {at}{cost} {detail or 'by someone'}"
    elif event == AnnouncedEvent.RUN_DEAD_LETTERED:
        line = f"{who} was given up {at}{cost}{why}"
    else:
        heals = run.block is not None and run.block.heals
        waits = "until that is put right" if heals else "and waits for a person"
        line = f"{who} is blocked {at} {waits}{why}"
    return one_line(line, MAX_SUMMARY_CHARS)


def _request_in(events: Sequence[TraceEvent]) -> str | None:
    """Return who requested what ended the run, and why; None: no person did."""
    for event in events:
        if event.type is TraceType.RUN_CANCELLED:
            actor = (event.model_extra or {}).get("actor") or "someone"
            why = f": {event.reason}" if event.reason else ""
            return one_line(f"by {actor}{why}", MAX_DELIVERY_DETAIL_CHARS)
    return None
