"""A message of the bus within this process: one try now, and the next at its time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.delivery import DeliveryState, delivery_of, delivery_ref
from leasehold.domain.event_message import EventMessage
from leasehold.services.deliver_notification import DeliveryHint, DeliveryOutcome, deliver
from leasehold.services.engine import Engine

#: The queue waits between tries, and not the thread that makes them: it has other messages too.
_ONE_TRY: Final = timedelta()

_UNFINISHED: Final = (DeliveryOutcome.DUE_LATER, DeliveryOutcome.CLAIMED)


def deliver_message(engine: Engine, message: EventMessage) -> datetime | None:
    """Announce what is due; return when to look again, None: it is over.

    Raises:
        StoreUnavailableError: it is not known what became of it.
        UnreadableDeliveryError: somebody edited it meanwhile.
    """
    about = message.delivery
    hint = DeliveryHint(about.run_id, about.occurrence, about.channel)
    if deliver(engine, hint, within=_ONE_TRY) not in _UNFINISHED:
        return None
    return _next_look(engine, hint)


def _next_look(engine: Engine, hint: DeliveryHint) -> datetime | None:
    """Return when a delivery is due again, or the claim on it is over."""
    ref = delivery_ref(hint.run_id, hint.occurrence, hint.channel)
    found = engine.documents.get(ref)
    if found is None:
        return None
    delivery = delivery_of(ref, found.document)
    if delivery.state is DeliveryState.CLAIMED and delivery.claim is not None:
        return delivery.claim.expires_at
    return delivery.not_before or delivery.alarm_at
