"""The message of `deliver_notification`: a hint that a delivery is due."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, RequestPart


class PushMessage(RequestPart):
    """A message as Pub/Sub pushes it. It has more fields."""

    model_config = ConfigDict(extra="ignore")

    data: Annotated[bytes, rules.base64_bytes()]


class PushBody(RequestModel):
    """What an event of Pub/Sub holds."""

    model_config = ConfigDict(extra="ignore")

    message: PushMessage


class AnnouncedFacts(RequestPart):
    """Which delivery is due. What else is said of it is for other readers, and not believed."""

    model_config = ConfigDict(extra="ignore")

    run_id: Annotated[str, rules.run_id()]
    occurrence: Annotated[str, rules.occurrence()]
    channel: Annotated[str, rules.printable(63)]


class EventBody(RequestModel):
    """The CloudEvent that the message is; a later version may put more into it."""

    model_config = ConfigDict(extra="ignore")

    data: AnnouncedFacts
