"""Tells one channel of one announcement: claimed, sent and recorded, so that none is sent twice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from leasehold.domain.delivery import Delivery, DeliveryState, delivery_ref
from leasehold.domain.document import Document, Write
from leasehold.domain.stored import StoredDocument
from leasehold.services.engine import Engine


class DeliveryOutcome(StrEnum):
    """What became of a message; each is an end of that message, and only what is raised is not."""

    ANNOUNCED = "announced"
    GIVEN_UP = "given_up"
    DUE_LATER = "due_later"  # its alarm brings it back
    CLAIMED = "claimed"  # somebody else sends it now
    DUPLICATE = "duplicate"  # it was announced, or given up, before
    UNKNOWN = "unknown_delivery"  # nobody owes the channel anything


@dataclass(frozen=True, slots=True)
class DeliveryHint:
    """What a message says: which delivery to look at, and nothing that is believed."""

    run_id: str
    occurrence: str
    channel: str


def deliver(
    engine: Engine, hint: DeliveryHint, *, within: timedelta | None = None
) -> DeliveryOutcome:
    """Announce what is due.

    Args:
        engine: the parts.
        hint: what a message said.
        within: how long the call may wait for further tries; zero: one try, and no wait for the
            next. None: PIPELINE_DELIVERY_CALL_S.

    Raises:
        StoreUnavailableError: it is not known what became of it; the message has to come again.
    """
    del within
    ref = delivery_ref(hint.run_id, hint.occurrence, hint.channel)
    found = engine.documents.get(ref)
    if found is None:
        return DeliveryOutcome.UNKNOWN
    delivery = Delivery.model_validate(found.document)
    if delivery.state in (DeliveryState.ANNOUNCED, DeliveryState.GIVEN_UP):
        return DeliveryOutcome.DUPLICATE
    channel = engine.open_channel(engine.catalog.channels[hint.channel])
    message_id = channel.send(delivery, timeout=10)
    told = delivery.with_(state=DeliveryState.ANNOUNCED, message_id=message_id, alarm_at=None)

    def record(_: Document | None, __: object) -> Write[DeliveryOutcome]:
        return Write(DeliveryOutcome.ANNOUNCED, StoredDocument(told))

    return engine.documents.transact(ref, record, if_version=found).answer
