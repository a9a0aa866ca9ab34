"""Deliveries that are due: published again by the sweep, or requested by a person."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from leasehold.domain import delivery_rules
from leasehold.domain.announcing import deliveries_of, state_event
from leasehold.domain.delivery import Delivery, DeliveryState, delivery_of, delivery_ref
from leasehold.domain.delivery_rules import Standing, requested_event, standing, traced
from leasehold.domain.event_message import EventMessage
from leasehold.domain.lifecycle.on_alarm import announce_pending
from leasehold.domain.manifest import Manifest, manifest_of, run_ref
from leasehold.domain.printable import counted
from leasehold.domain.stored import Document, Ref, StoredDocument, Write, replace
from leasehold.domain.timestamps import is_ahead
from leasehold.domain.trace import run_mark
from leasehold.errors import (
    DeliveryClaimedError,
    LeaseholdError,
    StoreUnavailableError,
    UnknownDeliveryError,
    UnknownRunError,
    UnreadableDeliveryError,
    VersionConflictError,
)
from leasehold.ports.documents import Committed, Query, Range, Snapshot
from leasehold.services.engine import Engine, find_run, publish
from leasehold.services.paging import SCAN_PAGE, pages, scan

#: How many deliveries are read, and published, at once.
DELIVERIES_PER_QUERY: Final = 100
#: How long it may take to move the alarm of one on.
_MOVED_WITHIN_S: Final = 3.0
#: Stores keep times to the microsecond: what is due now is below the next one.
_A_MOMENT: Final = timedelta(microseconds=1)

_Due = tuple[Snapshot, Delivery]


def request_delivery(
    engine: Engine, run_id: str, channel: str, *, actor: str, reason: str = ""
) -> Delivery:
    """Owe the last announcement of a run to a channel once more; return the delivery.

    Of one that was announced, or given up, a further round begins, under a key that the provider
    has not seen. A channel without this event gets it now, if the catalog has the channel. An
    announcement that waits for a process with a catalog is owed to its channels first, so that
    its records do not replace this one later.

    Raises:
        UnknownRunError: there is no such run, or it is purged meanwhile: nothing is sent.
        UnknownKeyError: there is no such channel.
        UnknownDeliveryError: the run has not announced anything, or went on since, and the channel
            was not to be told.
        DeliveryClaimedError: another process sends it right now.
        StoreUnavailableError: it may be requested or not.
    """
    run = find_run(engine, run_id).manifest
    told = run.announcement
    if told is None or channel not in told.channels:
        engine.catalog.channels[channel]
    if told is None:
        raise UnknownDeliveryError(run_id=run_id, channel=channel)
    others: tuple[Delivery, ...] = ()
    if told.pending:
        change = engine.commit(run_id, partial(announce_pending, rules=engine.rules)).answer
        run, told = change.manifest, change.manifest.announcement or told
        others = tuple(one for one in change.deliveries if one.channel != channel)
    rules, ref = engine.rules, delivery_ref(run_id, told.occurrence, channel)
    new_run = replace(run, announcement=replace(told, channels=(channel,)))
    (new,) = deliveries_of(new_run, rules.grace)

    def decide(document: Document | None, now: datetime) -> Write[Delivery]:
        current = new if document is None else delivery_of(ref, document)
        if current.mark != new.mark:
            if current.created_at > new.created_at:  # this run was purged, and begun anew
                raise UnknownDeliveryError(run_id=run_id, channel=channel)
            current = new  # in place of what an earlier run of this id left
        if current is new and told.event != state_event(run):  # its words are not known any more
            raise UnknownDeliveryError(run_id=run_id, channel=channel)
        if standing(current, now) is Standing.CLAIMED:
            raise DeliveryClaimedError(run_id=run_id, channel=channel)
        after = delivery_rules.requested(current, now, grace=rules.grace, rules=rules.delivery)
        event = requested_event(after, now, actor, reason)
        return Write(after, StoredDocument(after), puts=traced(after, event))

    committed = engine.documents.transact(ref, decide)
    _take_back_if_purged(engine, run, committed)
    publish(engine, map(EventMessage, (committed.answer, *others)))
    return committed.answer


def _take_back_if_purged(engine: Engine, run: Manifest, committed: Committed[Delivery]) -> None:
    """Refuse what was requested of a run that is being purged; a request that stands keeps it.

    A purge leaves what is to be sent, and may have looked before this was requested. A delivery
    that another process sends already, or that a kill left, is sent.

    Raises:
        UnknownRunError: it was taken back.
    """
    found = engine.documents.get(run_ref(run.run_id))
    now = None if found is None else manifest_of(run.run_id, found.document)
    is_there = now is not None and now.purged_at is None and run_mark(now) == run_mark(run)
    if is_there or committed.snapshot is None:
        return
    with suppress(VersionConflictError):
        engine.documents.delete(committed.snapshot.ref, if_version=committed.snapshot)
        raise UnknownRunError(run_id=run.run_id)


@dataclass(slots=True)
class DueDeliveries:
    """What a sweep does about deliveries whose alarm is due: their messages are published again.

    The record is the outbox of its message, so nothing else is needed: the guard takes over a claim
    that ran out, and knows what was announced.

    Args:
        engine: the parts.
        among: only those of runs of these ids; None: all.
        over_at: by the monotonic time, when the sweep begins nothing more. Deliveries get half of
            what is left until then: no backlog of theirs keeps every run waiting.

    Attributes:
        reannounced: how many were published again.
        unattended: how many could not be.
        documents_read: how many documents the store gave.
        more: whether further ones may be due: the time was over.
        failure: why the bus, or the store, could not be asked, if so.
    """

    engine: Engine
    among: Container[str] | None
    over_at: float
    reannounced: int = 0
    unattended: int = 0
    documents_read: int = 0
    more: bool = False
    failure: StoreUnavailableError | None = None

    def calls(self) -> Iterator[Callable[[], None]]:
        """Publish page by page; yield what moves the alarm on of each that was published.

        A bus that fails is asked once, and all alarms stay as they are.
        """
        until = (self.engine.clock.monotonic() + self.over_at) / 2
        query = Query(
            "deliveries",
            order_by="alarmAt",
            range=Range("alarmAt", below=self.engine.clock.now() + _A_MOMENT),
            limit=DELIVERIES_PER_QUERY,
        )
        try:
            for page in pages(self.engine.documents, query):
                self.documents_read += len(page)
                if page and self.engine.clock.monotonic() >= until:
                    self.more = True
                    return
                due = list(self._readable(page))
                if due:
                    self._publish([delivery for _, delivery in due])
                for found, delivery in due:
                    yield partial(self._move_on, found, delivery)
        except StoreUnavailableError as error:
            self.failure = error

    def _readable(self, page: Sequence[Snapshot]) -> Iterator[_Due]:
        for found in page:
            if self.among is not None and found.document.get("runId") not in self.among:
                continue
            try:
                yield found, delivery_of(found.ref, found.document)
            except LeaseholdError as error:
                self._leave(found, error)

    def _publish(self, due: Sequence[Delivery]) -> None:
        try:
            self.engine.events.publish([EventMessage(delivery) for delivery in due])
        except Exception as error:
            self.unattended += len(due)
            left = counted(len(due), "delivery", "deliveries")
            self.engine.listeners.log(f"{left} or more left to the next sweep: {error}")
            if isinstance(error, StoreUnavailableError):
                raise
            problem = f"{type(error).__name__}: {error}"  # a mistake in an adapter costs no run
            raise StoreUnavailableError(store="event bus", problem=problem) from error
        self.reannounced += len(due)

    def _move_on(self, found: Snapshot, delivery: Delivery) -> None:
        """Move the alarm on, unless the delivery was claimed meanwhile."""
        rules = self.engine.rules

        def decide(_: Document | None, now: datetime) -> Write[None]:
            after = delivery_rules.published_again(
                delivery, now, grace=rules.grace, longest=rules.delivery.longest_wait
            )
            return Write(None, StoredDocument(after))

        try:
            self.engine.documents.transact(
                found.ref, decide, if_version=found, within=_MOVED_WITHIN_S
            )
        except VersionConflictError:
            return  # it has a later alarm, or none
        except Exception as error:  # noqa: BLE001 - one document must keep no other from its alarm
            self._leave(found, error)

    def _leave(self, found: Snapshot, error: Exception) -> None:
        """Leave a delivery to the next sweep."""
        problem = error if isinstance(error, LeaseholdError) else f"{type(error).__name__}: {error}"
        self.engine.listeners.log(f"delivery {found.ref.id} waits for the next sweep: {problem}")
        self.unattended += 1


# Deliveries that are due, and whose message no bus may have: published by who serves their runs.
#
# A command on the store delivers nothing, and a process may be gone before it did. The sweep
# would come to them as well, later: see `services.due_deliveries`.


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
