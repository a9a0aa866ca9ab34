"""What channels were told of runs, as methods of the client."""

from __future__ import annotations

from typing import Protocol

from leasehold.api.deliveries import (
    DeliverBody,
    DeliveriesQuery,
    DeliveriesResponse,
    DeliveryReport,
)
from leasehold.client.arguments import Run, id_of
from leasehold.client.source import Source
from leasehold.domain.delivery import DeliveryState
from leasehold.services.limits import DEFAULT_PAGE


class _Client(Protocol):
    """What these methods need of a client."""

    @property
    def actor(self) -> str: ...

    @property
    def source(self) -> Source: ...


class DeliveryCalls:
    """What is announced of runs: to look at it, and to have a channel told again."""

    def deliveries(self: _Client, run: Run) -> list[DeliveryReport]:
        """Return what channels were told of the run, or are still owed, newest first."""
        return self.source.deliveries(id_of(run))

    def list_deliveries(
        self: _Client,
        *,
        channel: str | None = None,
        state: DeliveryState | str | None = None,
        limit: int = DEFAULT_PAGE,
        page_token: str | None = None,
    ) -> DeliveriesResponse:
        """Return at most `limit` deliveries of all runs that fit, newest first.

        Args:
            channel: those to this channel, also to one that no catalog has any more.
            state: "due", "claimed", "announced" or "given_up".
            limit: how many at most.
            page_token: `next_page_token` of an earlier answer to the same filter.
        """
        given = {"channel": channel, "state": state, "limit": limit, "pageToken": page_token}
        query = DeliveriesQuery.model_validate(
            {name: value for name, value in given.items() if value is not None}
        )
        return self.source.delivery_page(query.to_filter(), query.limit, query.page_token)

    def deliver(self: _Client, run: Run, channel: str, *, reason: str = "") -> DeliveryReport:
        """Have a channel told of the run once more, as the run was announced last.

        One that is due already is sent now, and not doubled. After one that was announced, or
        given up, another is sent, whose idempotency key the provider has not seen.

        Args:
            run: the run.
            channel: a channel of the catalog.
            reason: kept in the run's trace, with who asks.

        Raises:
            UnknownKeyError: the catalog has no such channel.
            UnknownDeliveryError: nothing was announced of the run so far.
            DeliveryClaimedError: somebody tells the channel right now.
        """
        body = DeliverBody(channel=channel, reason=reason)
        return self.source.deliver(id_of(run), body.channel, reason=body.reason, actor=self.actor)
