"""Deliveries: one announcement of a run to one channel (`deliveries/{id}`).

The record is made by the commit that ends or blocks the run. It is the outbox of its message: while
it is due, or claimed by a process that may be gone, it has an alarm.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime, ValidationError

from leasehold.domain.announcement import AnnouncedEvent, Priority
from leasehold.domain.stored import (
    Count,
    Document,
    Ref,
    Stored,
    StoredDocument,
    Text,
    UnreadableDocument,
)
from leasehold.errors import UnreadableDeliveryError

#: What a summary, a detail and a reason are cut to, in characters.
MAX_SUMMARY_CHARS: Final = 300
#: Likewise the author's own summary of an output, in place of the engine's sentence.
MAX_OUTPUT_SUMMARY_CHARS: Final = 500
MAX_DELIVERY_DETAIL_CHARS: Final = 500
MAX_DELIVERY_REASON_CHARS: Final = 100
#: Characters of what a provider calls a message.
MAX_MESSAGE_ID_CHARS: Final = 200

_MAX_ID_SHOWN_CHARS: Final = 128
_OCCURRENCE: Final = re.compile(r"\d{1,19}(\.\d{1,9})?", re.ASCII)


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    DUE = "due"  # to be announced, now or at its next try
    CLAIMED = "claimed"  # a process sends it
    ANNOUNCED = "announced"  # the provider took it
    GIVEN_UP = "given_up"  # the provider refused it, or 24 hours were over


class Claim(Stored):
    """The right to send a delivery, until a time. It is over at `expires_at` itself."""

    claim_id: Text
    holder: Text
    expires_at: AwareDatetime


class Delivery(Stored):
    """One announcement to one channel, and its state. What people see: docs/http-api.md."""

    run_id: Text
    occurrence: Text
    channel: Text
    pipeline: Text
    event: AnnouncedEvent | Text
    priority: Priority | Text
    step: Text
    summary: Text  # one plain line
    reason: Text | None = None  # of a dead letter, or the code of a block
    detail: Text | None = None
    signal: Text | None = None  # that the run waits for
    mark: Text  # tells the run from an earlier one of the same id
    traceparent: Text | None = None  # what the run was begun with

    state: DeliveryState
    created_at: AwareDatetime
    updated_at: AwareDatetime
    requested_at: AwareDatetime | None = None  # when a person asked for it again
    alarm_at: AwareDatetime | None = None  # when its message is published again
    not_before: AwareDatetime | None = None  # of the next try
    give_up_at: AwareDatetime

    token: Count = 0  # how often it was claimed; each write of a claim is fenced by it
    claim: Claim | None = None
    round: Count = 1  # more than 1: a person asked for it again
    tries: Count = 0  # of this round
    unknown: Count = 0  # sends whose result is unknown: the provider may have taken them
    published: Count = 0  # how often the sweep published its message again
    message_id: Text | None = None  # as the provider named it
    announced_at: AwareDatetime | None = None
    given_up_at: AwareDatetime | None = None
    given_up_why: Text | None = None
    last_error: Text | None = None

    @property
    def delivery_id(self) -> str:
        """The name of its document."""
        return f"{self.run_id}:{self.occurrence}:{self.channel}"

    @property
    def due_since(self) -> datetime:
        """When this round of it began."""
        return self.requested_at or self.created_at

    @property
    def key(self) -> str:
        """What tells a provider that it has this announcement already: the same at each try."""
        key = f"{self.delivery_id}:{self.mark}"
        return key if self.round == 1 else f"{key}:{self.round}"


def delivery_ref(run_id: str, occurrence: str, channel: str) -> Ref:
    """Return the name of a delivery's document."""
    return Ref("deliveries", f"{run_id}:{occurrence}:{channel}")


def delivery_of(ref: Ref, document: Document) -> Delivery:
    """Return the delivery that a document is, or raise UnreadableDeliveryError."""
    if isinstance(document, UnreadableDocument):
        raise UnreadableDeliveryError(delivery=ref.id, problem=document.problem)
    if isinstance(document, StoredDocument) and isinstance(document.value, Delivery):
        return document.value  # this process wrote it a moment ago
    try:
        delivery = Delivery.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UnreadableDeliveryError(delivery=ref.id, problem=problem) from None
    if delivery.delivery_id != ref.id:
        problem = (
            f"it is that of {delivery.delivery_id[:_MAX_ID_SHOWN_CHARS]!r}, which is not its name"
        )
        raise UnreadableDeliveryError(delivery=ref.id, problem=problem)
    return delivery


def is_occurrence(text: str) -> bool:
    """Return whether an announcement could have this occurrence."""
    return _OCCURRENCE.fullmatch(text) is not None
