"""Deliveries in a few words: where one stands, and whom a run was announced to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from leasehold.api.deliveries import DeliveryReport
from leasehold.domain.delivery import DeliveryState
from leasehold.domain.printable import one_line
from leasehold.presentation.formatting import StyledText, ago

#: What is shown of a provider's words; all of them are in --json.
_MAX_WORDS_CHARS: Final = 160

_STATES: Final = {
    DeliveryState.DUE: StyledText("due", "cyan"),
    DeliveryState.CLAIMED: StyledText("claimed", "blue"),
    DeliveryState.ANNOUNCED: StyledText("announced", "green"),
    DeliveryState.GIVEN_UP: StyledText("given_up", "red", "given up"),
}


def delivery_state(delivery: DeliveryReport) -> StyledText:
    """Return where a delivery stands."""
    return _STATES[delivery.state]


def delivery_detail(delivery: DeliveryReport, now: datetime) -> str:
    """Return what is next for a delivery, or what became of it."""
    match delivery.state:
        case DeliveryState.ANNOUNCED:
            return (
                f"as {one_line(delivery.message_id, _MAX_WORDS_CHARS)}"
                if delivery.message_id
                else ""
            )
        case DeliveryState.GIVEN_UP:
            why = filter(None, (delivery.given_up_why, delivery.last_error))
            return one_line(": ".join(why), _MAX_WORDS_CHARS)
        case DeliveryState.CLAIMED:
            return f"sent by {delivery.holder}"
    at = delivery.next_try_at
    when = f"next try {ago(at, now)}" if at is not None and at > now else "waits for its message"
    return (
        f"{when}: {one_line(delivery.last_error, _MAX_WORDS_CHARS)}"
        if delivery.last_error
        else when
    )


def announced_to(deliveries: Sequence[DeliveryReport], now: datetime) -> str:
    """Return the channels that got the announcement, and the state of the others.

    Args:
        deliveries: those of one run, newest first; of each channel the newest counts.
        now: the time.
    """
    newest = {one.channel: one for one in reversed(deliveries)}.values()
    told = [one.channel for one in newest if one.state is DeliveryState.ANNOUNCED]
    others = [_other(one, now) for one in newest if one.state is not DeliveryState.ANNOUNCED]
    return "; ".join([f"to {', '.join(told)}", *others] if told else others)


def _other(delivery: DeliveryReport, now: datetime) -> str:
    words = f"{delivery.channel} {delivery_state(delivery).on_screen}"
    detail = delivery_detail(delivery, now)
    return f"{words} ({detail})" if detail else words
