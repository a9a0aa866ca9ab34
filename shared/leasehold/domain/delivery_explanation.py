"""What people are still to be told of a run, and why they were not: `why`, a sentence a channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from leasehold.domain.announcement import Announcement
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.moment import stamp
from leasehold.domain.printable import counted


def unannounced(last: Announcement | None, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return what somebody still has to be told, or will not be told any more.

    What was given up of an earlier announcement is past: the run has moved on since.

    Args:
        last: the last announcement of the run.
        deliveries: all of the run.
    """
    occurrence = None if last is None else last.occurrence
    return [
        one
        for one in deliveries
        if one.state in (DeliveryState.DUE, DeliveryState.CLAIMED)
        or (one.state is DeliveryState.GIVEN_UP and one.occurrence == occurrence)
    ]


def explain_delivery(delivery: Delivery, now: datetime, held_until: Mapping[str, datetime]) -> str:
    """Return one sentence on a delivery that is not announced.

    Args:
        delivery: the delivery.
        now: the store's time.
        held_until: channels whose breaker is open, and until when nothing is sent to them.
    """
    return " ".join(_parts(delivery, now, held_until.get(delivery.channel)))


def _parts(delivery: Delivery, now: datetime, held_until: datetime | None) -> Iterator[str]:
    channel, event = delivery.channel, delivery.event
    if delivery.state is DeliveryState.GIVEN_UP:
        known = filter(None, (delivery.given_up_why, delivery.last_error))
        why = ": ".join(known) or "nobody wrote down why"
        yield f"Channel {channel} was not told of {event}, and will not be: {why.rstrip('.')}."
        yield ":deliver tells it once more."
        return
    claim = delivery.claim
    if delivery.state is DeliveryState.CLAIMED and claim is not None and now < claim.expires_at:
        yield f"Channel {channel} is being told of {event} by {claim.holder}."
    else:
        yield f"Channel {channel} is still to be told of {event}: {_next(delivery, now)}."
        if held_until is not None and now < held_until:
            yield f"Nothing is sent to it until {stamp(held_until)}: its breaker is open."
    if delivery.unknown:
        them = "it" if delivery.unknown == 1 else "they"
        yield f"Of {counted(delivery.unknown, 'send')} nobody knows whether {them} got through."
    if delivery.last_error:
        yield f"Its last error: {delivery.last_error.rstrip('.')}."


def _next(delivery: Delivery, now: datetime) -> str:
    """Return when it is sent, after how many tries."""
    after = f" after {counted(delivery.tries, 'try', 'tries')}" if delivery.tries else ""
    at = delivery.not_before
    if delivery.state is DeliveryState.CLAIMED:
        return f"whoever sent it did not say how that ended{after}, and the sweep takes it up"
    if at is not None and now < at:
        return f"it is sent again at {stamp(at)}{after}"
    if delivery.alarm_at is not None and now < delivery.alarm_at:
        again = f"the sweep publishes it again at {stamp(delivery.alarm_at)}"
        return f"its message is on its way{after}; {again}"
    return f"the next sweep publishes its message again{after}"
