"""Deliveries that are due: published again by the sweep, or asked for by a person."""

from __future__ import annotations

from leasehold.domain.announcing import deliveries_of
from leasehold.domain.delivery import Delivery
from leasehold.errors import UnknownDeliveryError
from leasehold.services.engine import Engine, find_run


def request_delivery(
    engine: Engine, run_id: str, channel: str, *, actor: str, reason: str = ""
) -> Delivery:
    """Have a channel told once more of the last announcement of a run; return what it is owed.

    Raises:
        UnknownRunError: there is no such run.
        UnknownDeliveryError: the run has not announced anything that the channel can be told.
    """
    del actor, reason
    run = find_run(engine, run_id).manifest
    for delivery in deliveries_of(run, engine.rules.grace):
        if delivery.channel == channel:
            return delivery
    raise UnknownDeliveryError(run_id=run_id, channel=channel)
