"""The deliveries of runs that are to go: one that is still owed keeps its run, all others go."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.announcing import GIVEN_UP_AFTER
from leasehold.domain.collections import DELIVERIES
from leasehold.domain.delivery import DeliveryState
from leasehold.domain.manifest import Manifest
from leasehold.ports.documents import Query, Range
from leasehold.services.engine import Engine
from leasehold.services.paging import SCAN_PAGE, scan

_OWED: Final = (DeliveryState.DUE, DeliveryState.CLAIMED)


def runs_that_owe(engine: Engine, now: datetime) -> frozenset[str]:
    """Return the runs of which somebody is still to be told.

    An announcement is given up after a day, or what PIPELINE_DELIVERY_GIVE_UP_S says. One that is
    older keeps no run: where nothing sends announcements, runs would be kept for ever.
    """
    since = Range("createdAt", at_least=now - _given_up_after(engine))
    return frozenset(
        str(found.document.get("runId"))
        for state in _OWED
        for found in scan(
            engine.documents,
            Query(
                DELIVERIES.name,
                order_by="createdAt",
                equal={"state": state.value},
                range=since,
                descending=True,
                limit=SCAN_PAGE,
            ),
        )
    )


def is_still_to_be_owed(engine: Engine, run: Manifest, now: datetime) -> bool:
    """Return whether whoever ended a run left its announcement to somebody with a catalog."""
    told = run.announcement
    return told is not None and told.pending and now - told.at < _given_up_after(engine)


def delete_deliveries(engine: Engine, run: Manifest) -> None:
    """Delete the deliveries of a run that is marked.

    Those that are younger than its mark are the next run's of its key: this purge is late then, and
    another one was faster.
    """
    query = Query(
        DELIVERIES.name,
        order_by="createdAt",
        equal={"runId": run.run_id},
        range=Range("createdAt", below=run.purged_at),
        descending=True,
        limit=SCAN_PAGE,
    )
    for found in scan(engine.documents, query):
        engine.documents.delete(found.ref)


def _given_up_after(engine: Engine) -> timedelta:
    return max(engine.rules.delivery.give_up_after, GIVEN_UP_AFTER)
