"""Runs in trouble: those that say they run, but do not move as they should.

Each kind is looked for where an index has little else: alarms that are past, by their shards, and
deliveries by their states.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from math import ceil
from typing import Any, Final

from leasehold.domain.delivery import Delivery, DeliveryState, delivery_of, delivery_ref
from leasehold.domain.explanation import unannounced
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Manifest, manifest_of, read_as, run_ref
from leasehold.domain.status import RunStatus
from leasehold.domain.trouble import Trouble, TroubleFacts, troubles_of
from leasehold.errors import UnreadableDeliveryError, UnreadableRunError
from leasehold.ports.documents import Queries, Query, Range, Snapshot
from leasehold.services.engine import Engine
from leasehold.services.paging import Place, place_behind, scan
from leasehold.services.read_deliveries import deliveries_of_run

#: Stores keep times to the microsecond: what is due now is below the next one.
_A_MOMENT: Final = timedelta(microseconds=1)
#: A value that is not a time comes before all times.
_NO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)
#: The states of deliveries that are due, or were given up.
_OWED: Final = (DeliveryState.DUE, DeliveryState.CLAIMED, DeliveryState.GIVEN_UP)

#: Where a run stands in its list, and the run; None: what was looked at there is no run to list.
Found = tuple[Place, Snapshot | None]


def has_trouble(engine: Engine, trouble: Trouble, found: Snapshot) -> bool:
    """Return whether a run has this trouble; not, where it cannot be read."""
    try:
        if trouble is Trouble.ANNOUNCEMENT:
            return bool(owed_by(engine, manifest_of(found.ref.id, found.document)))
        facts = read_as(TroubleFacts, found.ref.id, found.document)
    except UnreadableRunError:
        return False
    return trouble in troubles_of(facts, found.read_at, engine.rules.grace)


def owed_by(engine: Engine, run: Manifest) -> list[Delivery]:
    """Return the announcements of a run that are due or were given up, newest first."""
    if run.announcement is None:
        return []
    return unannounced(run.announcement, deliveries_of_run(engine, run))


def overdue(
    engine: Engine, documents: Queries, trouble: Trouble, after: Place | None, at_once: int
) -> Iterator[Found]:
    """Yield the runs whose alarm is past, the oldest first, and so all that are silent.

    Args:
        engine: the parts.
        documents: reads as much of each run as is needed.
        trouble: silent or overdue.
        after: continue behind this place.
        at_once: how many runs are read at once; from all shards together.
    """
    now = engine.clock.now()
    is_silent = trouble is Trouble.SILENT
    query = Query(
        "runs",
        order_by="alarmAt",
        range=Range("alarmAt", below=now + _A_MOMENT if is_silent else now - engine.rules.grace),
        limit=ceil(at_once / SHARDS) + 1,
        after=after,
    )
    equal: dict[str, Any] = {"status": RunStatus.IN_PROGRESS.value} if is_silent else {}
    queries = (replace(query, equal={"shard": shard, **equal}) for shard in range(SHARDS))
    found_runs = (scan(documents, query) for query in queries)
    for found in heapq.merge(*found_runs, key=partial(_moment_and_id, "alarmAt")):
        yield place_behind(found, "alarmAt"), found


def unannounced_runs(engine: Engine, after: Place | None, at_once: int) -> Iterator[Found]:
    """Yield the runs with an announcement that is due or was given up, the latest first.

    Each comes once, in the place of its latest one, whatever else it owes.
    """
    query = Query("deliveries", order_by="createdAt", descending=True, limit=at_once, after=after)
    states = (replace(query, equal={"state": state.value}) for state in _OWED)
    deliveries = (scan(engine.documents, query) for query in states)
    key = partial(_moment_and_id, "createdAt")
    for found in heapq.merge(*deliveries, key=key, reverse=True):
        yield place_behind(found, "createdAt"), _run_of(engine, found)


def _run_of(engine: Engine, found: Snapshot) -> Snapshot | None:
    """Return the run whose latest owed announcement this is; None: it is another's, or past."""
    try:
        delivery = delivery_of(found.ref, found.document)
        run = engine.documents.get(run_ref(delivery.run_id))
        if run is None:
            return None
        owed = owed_by(engine, manifest_of(delivery.run_id, run.document))
    except (UnreadableDeliveryError, UnreadableRunError):
        return None
    latest = next((delivery_ref(it.run_id, it.occurrence, it.channel) for it in owed), None)
    return run if latest == found.ref else None


def _moment_and_id(field: str, found: Snapshot) -> tuple[datetime, str]:
    """Return what a store orders by."""
    return moment_of(found.document.get(field)) or _NO_TIME, found.ref.id


def moment_of(value: Any) -> datetime | None:
    """Return the time that a field of a document is; some stores have it as text."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment.astimezone(UTC) if isinstance(moment, datetime) else None
    except (ValueError, OverflowError):
        return None
