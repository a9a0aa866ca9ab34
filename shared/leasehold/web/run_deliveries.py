"""The routes of deliveries: what channels were told of runs, and to tell one again."""

from __future__ import annotations

import flask

from leasehold.api.deliveries import (
    DeliverBody,
    DeliveriesQuery,
    DeliveriesResponse,
    DeliveryReport,
    RunDeliveriesResponse,
)
from leasehold.services.due_deliveries import request_delivery
from leasehold.services.read_deliveries import list_deliveries, read_deliveries
from leasehold.web.responses import respond
from leasehold.web.route import Call


def deliveries(call: Call[DeliveriesQuery]) -> flask.Response:
    """What channels were told of all runs, or are owed: a page, newest first."""
    query = call.given
    wanted, token = query.to_filter(), query.page_token
    page = list_deliveries(call.engine, wanted, limit=query.limit, page_token=token)
    return respond(DeliveriesResponse.of(page))


def run_deliveries(call: Call[None]) -> flask.Response:
    """What channels were told of a run, or are owed, newest first."""
    return respond(RunDeliveriesResponse.of(read_deliveries(call.engine, call.run_id)))


def deliver(call: Call[DeliverBody]) -> flask.Response:
    """Tell a channel of the run once more, as it was announced last.

    One that is on its way already is answered as it is, and not doubled.
    """
    body = call.given
    owed = request_delivery(
        call.engine, call.run_id, body.channel, actor=call.actor, reason=body.reason
    )
    return respond(DeliveryReport.of(owed))
