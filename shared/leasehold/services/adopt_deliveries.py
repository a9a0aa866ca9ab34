"""Deliveries that are due, and whose message no bus may have: published by who serves their runs.

A command on the store delivers nothing, and a process may be gone before it did. The sweep would
come to them as well, later: see `services.due_deliveries`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from leasehold.domain import delivery_rules
from leasehold.domain.delivery import DeliveryState, delivery_of
from leasehold.domain.event_message import EventMessage
from leasehold.domain.printable import counted
from leasehold.domain.stored import Document, Ref, StoredDocument, Write
from leasehold.domain.timestamps import is_ahead
from leasehold.errors import StoreUnavailableError, UnreadableDeliveryError
from leasehold.ports.documents import Query, Range, Snapshot
from leasehold.services.engine import Engine
from leasehold.services.paging import SCAN_PAGE, pages, scan

#: Before every delivery.
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: A delivery has the time at which it was decided; it can be read a little later.
_COMMITTED_WITHIN: Final = timedelta(seconds=2)


def take_up_deliveries(
    engine: Engine, *, among: Container[str] | None = None, since: datetime
) -> datetime:
    """Publish the messages of deliveries that are due and were owed since then.

    Args:
        engine: the parts; a bus within this process drops a message that it has.
        among: only of runs of these ids; None: of all.
        since: what this returned before, or from when on they count.

    Returns:
        The time from which on to look the next time.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    if not list(engine.catalog.channels):
        return since
    now = engine.clock.now()
    due = Query(
        "deliveries",
        order_by="createdAt",
        equal={"state": DeliveryState.DUE.value},
        range=Range("createdAt", at_least=since),
        descending=True,
        limit=SCAN_PAGE,
    )
    for page in pages(engine.documents, due):
        owed = [one for one in _messages(page) if among is None or one.delivery.run_id in among]
        _publish(engine, owed)
    return max(since, now - _COMMITTED_WITHIN)


def wait_from_now(engine: Engine) -> None:
    """Have deliveries wait from now that were written by a clock that was set back since.

    They are for `take_up_deliveries` then; who sends one goes on.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    if not list(engine.catalog.channels):
        return
    ahead = Query(
        "deliveries",
        order_by="alarmAt",
        range=Range("alarmAt", at_least=engine.clock.now()),
        limit=SCAN_PAGE,
    )
    for found in scan(engine.documents, ahead):
        with suppress(UnreadableDeliveryError, OverflowError):  # as below
            if is_ahead(delivery_of(found.ref, found.document).updated_at, engine.clock.now()):
                engine.documents.transact(found.ref, partial(_from_now, found.ref))


def _from_now(ref: Ref, document: Document | None, now: datetime) -> Write[None]:
    delivery = None if document is None else delivery_of(ref, document)
    if delivery is None or not is_ahead(delivery.updated_at, now):
        return Write(None)
    return Write(None, StoredDocument(delivery_rules.from_now(delivery, now)))


def take_up_deliveries_of(engine: Engine, run_id: str) -> None:
    """Publish the messages of the due deliveries of one run.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    if not list(engine.catalog.channels):
        return
    of_run = Query(
        "deliveries",
        order_by="createdAt",
        equal={"runId": run_id},
        descending=True,
        limit=SCAN_PAGE,
    )
    for page in pages(engine.documents, of_run):
        owed = [one for one in _messages(page) if one.delivery.state is DeliveryState.DUE]
        _publish(engine, owed)


def _messages(found: Iterable[Snapshot]) -> Iterator[EventMessage]:
    for one in found:
        with suppress(UnreadableDeliveryError):  # a newer version's, or edited by hand
            yield EventMessage(delivery_of(one.ref, one.document))


def _publish(engine: Engine, messages: Sequence[EventMessage]) -> None:
    """Publish what is due; a bus that is away is for the sweep."""
    if not messages:
        return
    try:
        engine.events.publish(messages)
    except StoreUnavailableError as error:
        engine.listeners.log(
            f"{counted(len(messages), 'announcement')} left to the sweep, which publishes: {error}"
        )
