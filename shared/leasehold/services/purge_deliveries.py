"""The deliveries of runs that are to go: one that is still owed keeps its run, all others go."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.announcing import GIVEN_UP_AFTER
from leasehold.domain.collections import DELIVERIES
from leasehold.domain.delivery import DeliveryState, delivery_of
from leasehold.domain.lifecycle.purge import goes_with
from leasehold.domain.manifest import Manifest
from leasehold.errors import UnreadableDeliveryError, VersionConflictError
from leasehold.ports.documents import Query, Range, Snapshot
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


def delete_deliveries(engine: Engine, run: Manifest) -> bool:
    """Delete the deliveries of a run that is marked, and return whether all are gone.

    One that somebody asked for meanwhile stays until it is sent. Those of the next life of the
    run's id stay too: this purge is late then, and another one was faster.
    """
    query = Query(
        DELIVERIES.name,
        order_by="createdAt",
        equal={"runId": run.run_id},
        descending=True,
        limit=SCAN_PAGE,
    )
    mine = (found for found in scan(engine.documents, query) if _goes_with(run, found))
    left = [found.ref for found in mine if not _delete(engine, found)]
    return not left


def _goes_with(run: Manifest, found: Snapshot) -> bool:
    return goes_with(run, found.document.get("mark"), found.document.get("createdAt"))


def _delete(engine: Engine, found: Snapshot) -> bool:
    """Delete a delivery unless it is to be sent, or somebody has changed it since."""
    if _is_owed(engine, found):
        return False
    try:
        engine.documents.delete(found.ref, if_version=found)
    except VersionConflictError:
        return False
    return True


def _is_owed(engine: Engine, found: Snapshot) -> bool:
    try:
        delivery = delivery_of(found.ref, found.document)
    except UnreadableDeliveryError:  # nobody can send it
        return False
    is_young = found.read_at - delivery.due_since < _given_up_after(engine)
    return delivery.state in _OWED and is_young


def _given_up_after(engine: Engine) -> timedelta:
    return max(engine.rules.delivery.give_up_after, GIVEN_UP_AFTER)
