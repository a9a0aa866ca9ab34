"""The trace events of deliveries, each stored in the commit of what it tells."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from pydantic.alias_generators import to_camel

from leasehold.domain.delivery import Delivery
from leasehold.domain.delivery_rules import GiveUpReason
from leasehold.domain.stored import Document, Ref, StoredDocument
from leasehold.domain.trace import TraceEvent, TraceType, telling_ref

_CODES: Final = {str(reason): reason.name.lower() for reason in GiveUpReason}


def sent_event(delivery: Delivery, now: datetime) -> TraceEvent:
    """Return the event of a delivery that was announced."""
    return _event(
        delivery,
        TraceType.ANNOUNCEMENT_SENT,
        now,
        message_id=delivery.message_id,
        tries=delivery.tries,
        unknown=delivery.unknown,
        seconds_since_due=_seconds_since_due(delivery, now),
    )


def given_up_event(delivery: Delivery, now: datetime) -> TraceEvent:
    """Return the event of a delivery that was given up."""
    why = delivery.given_up_why or ""
    return _event(
        delivery,
        TraceType.ANNOUNCEMENT_GIVEN_UP,
        now,
        reason=_CODES.get(why, why),
        detail=delivery.last_error,
        tries=delivery.tries,
        unknown=delivery.unknown,
        seconds_since_due=_seconds_since_due(delivery, now),
    )


def requested_event(delivery: Delivery, now: datetime, actor: str, reason: str) -> TraceEvent:
    """Return the event of a delivery that a person wants made."""
    return _event(
        delivery,
        TraceType.ANNOUNCEMENT_REQUESTED,
        now,
        actor=actor,
        reason=reason or None,
        round=delivery.round,
    )


def traced(delivery: Delivery, event: TraceEvent) -> dict[Ref, Document]:
    """Return an event as it is put in the commit of a delivery: one is put under each token."""
    name = f"{delivery.occurrence}-{delivery.channel}-{delivery.token}"
    return {telling_ref(delivery.run_id, delivery.mark, name): StoredDocument(event)}


def _event(delivery: Delivery, type_: TraceType, now: datetime, **facts: Any) -> TraceEvent:
    further = {to_camel(name): fact for name, fact in facts.items() if fact is not None}
    return TraceEvent.model_validate(
        {
            "type": type_,
            "at": now,
            "step": delivery.step,
            "channel": delivery.channel,
            "runEvent": str(delivery.event),
            "occurrence": delivery.occurrence,
            **further,
        }
    )


def _seconds_since_due(delivery: Delivery, now: datetime) -> float:
    return round(max(0.0, (now - delivery.due_since).total_seconds()), 3)
