"""`/deliveries`: announcements of runs, sent or still due."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Self

from pydantic import BeforeValidator

from leasehold.api import request_model as rules
from leasehold.api.request_model import RequestModel, ResponseModel
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.services.read_deliveries import DeliveryFilter, DeliveryPage
from leasehold.services.request_bounds import DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS, MAX_REASON_CHARS


class DeliveryReport(ResponseModel):
    """One announcement of a run to one channel, and its state."""

    run_id: str
    occurrence: str
    channel: str
    pipeline: str
    event: str
    priority: str
    step: str
    summary: str
    reason: str | None
    detail: str | None
    state: DeliveryState
    created_at: datetime
    updated_at: datetime
    next_try_at: datetime | None
    give_up_at: datetime
    holder: str | None
    claimed_until: datetime | None
    round: int
    tries: int
    unknown: int
    last_error: str | None
    announced_at: datetime | None
    message_id: str | None
    given_up_at: datetime | None
    given_up_why: str | None

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        """Return a delivery for readers: the id of a claim is its holder's alone."""
        is_due = delivery.state is DeliveryState.DUE
        claim = delivery.claim if delivery.state is DeliveryState.CLAIMED else None
        return cls(
            run_id=delivery.run_id,
            occurrence=delivery.occurrence,
            channel=delivery.channel,
            pipeline=delivery.pipeline,
            event=str(delivery.event),
            priority=str(delivery.priority),
            step=delivery.step,
            summary=delivery.summary,
            reason=delivery.reason,
            detail=delivery.detail,
            state=delivery.state,
            created_at=delivery.created_at,
            updated_at=delivery.updated_at,
            next_try_at=delivery.not_before if is_due else None,
            give_up_at=delivery.give_up_at,
            holder=None if claim is None else claim.holder,
            claimed_until=None if claim is None else claim.expires_at,
            round=delivery.round,
            tries=delivery.tries,
            unknown=delivery.unknown,
            last_error=delivery.last_error,
            announced_at=delivery.announced_at,
            message_id=delivery.message_id,
            given_up_at=delivery.given_up_at,
            given_up_why=delivery.given_up_why,
        )


class RunDeliveriesResponse(ResponseModel):
    """`GET /runs/{id}/deliveries`: all of a run, newest first."""

    deliveries: list[DeliveryReport]

    @classmethod
    def of(cls, deliveries: Iterable[Delivery]) -> Self:
        """Return deliveries as they are answered."""
        return cls(deliveries=[DeliveryReport.of(one) for one in deliveries])


class DeliveriesQuery(RequestModel):
    """`GET /deliveries`; its values come as text."""

    channel: Annotated[str, rules.printable()] | None = None
    state: Annotated[DeliveryState, rules.one_of(DeliveryState)] | None = None
    limit: Annotated[int, rules.whole(1, MAX_PAGE_ITEMS), BeforeValidator(rules.number_of_text)] = (
        DEFAULT_PAGE_ITEMS
    )
    page_token: Annotated[str, rules.text("the nextPageToken of an earlier answer")] | None = None

    def to_filter(self) -> DeliveryFilter:
        """Return the filter as the service takes it."""
        return DeliveryFilter(self.channel, self.state)


class DeliveriesResponse(ResponseModel):
    """A page of deliveries, newest first, and where the next one begins; None: no more."""

    deliveries: list[DeliveryReport]
    next_page_token: str | None

    @classmethod
    def of(cls, page: DeliveryPage) -> Self:
        """Return a page as it is answered."""
        reports = [DeliveryReport.of(one) for one in page.deliveries]
        return cls(deliveries=reports, next_page_token=page.next_page_token)


class DeliverBody(RequestModel):
    """`POST /runs/{id}:deliver`."""

    channel: Annotated[str, rules.printable()]
    reason: Annotated[str, rules.printable(MAX_REASON_CHARS, least=0)] = ""
