"""Requests and answers of the functions that Google calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, RequestPart, ResponseModel


class SweepResponse(ResponseModel):
    """Counts; `services.sweep_result.SweepResult` says what each of them is."""

    dead_lettered: int
    by_reason: Mapping[str, int]
    recovered: int
    redispatched: int
    still_queued: int
    unattended: int
    reannounced: int
    archived: int
    purged: int
    scheduled: int = 0
    documents_read: int
    more: bool


class DerivationResponse(ResponseModel):
    """How many budgets were derived, of which steps the limit has changed, and what went wrong."""

    derived: int
    changed: list[str]
    problems: Mapping[str, str]


# The task of `execute_step`: a hint that a run has an attempt to make, and its outcome.


class TaskBody(RequestModel):
    """`POST` of Cloud Tasks. A later version may put more into a task that this one takes."""

    model_config = ConfigDict(extra="ignore")

    run_id: Annotated[str, rules.run_id()]
    generation: Annotated[int, rules.whole(1)]


class OutcomeResponse(ResponseModel):
    """The outcome of a call, in a word; of a task that is rejected, `reason` says why."""

    outcome: str
    reason: str | None = None


# The message of `deliver_notification`: a hint that a delivery is due.


class PushMessage(RequestPart):
    """A message as Pub/Sub pushes it. It has more fields."""

    model_config = ConfigDict(extra="ignore")

    data: Annotated[bytes, rules.base64_bytes()]


class PushBody(RequestModel):
    """The body of a push of Pub/Sub."""

    model_config = ConfigDict(extra="ignore")

    message: PushMessage


class AnnouncedFacts(RequestPart):
    """Which delivery is due. All other fields are for other readers, and not trusted."""

    model_config = ConfigDict(extra="ignore")

    run_id: Annotated[str, rules.run_id()]
    occurrence: Annotated[str, rules.occurrence()]
    channel: Annotated[str, rules.printable(63)]


class EventBody(RequestModel):
    """The CloudEvent that the message is; a later version may put more into it."""

    model_config = ConfigDict(extra="ignore")

    data: AnnouncedFacts
