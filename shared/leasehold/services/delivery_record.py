"""The record of a delivery: read once, and changed by rules, each in one commit with its event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from leasehold.domain import delivery_rules
from leasehold.domain.breaker import (
    Breaker,
    BreakerState,
    after_answer,
    after_failure,
    breaker_of,
    breaker_ref,
    let_one_through,
)
from leasehold.domain.delivery import Delivery, DeliveryState, delivery_of
from leasehold.domain.delivery_rules import Standing, given_up_event, sent_event, standing, traced
from leasehold.domain.stored import Document, Ref, StoredDocument, Write
from leasehold.domain.trace import TraceEvent
from leasehold.errors import StoreUnavailableError, VersionConflictError
from leasehold.ports.documents import Snapshot
from leasehold.services.engine import Engine, KnownBreaker
from leasehold.services.reporting import delivery_report, unknown_send_report

#: How long one commit may take.
_WITHIN_S: Final = 5.0

#: What becomes of a delivery, at the store's time.
Rule = Callable[[Delivery, datetime], Delivery]


@dataclass(frozen=True, slots=True)
class Written:
    """What is stored of a delivery now.

    Args:
        delivery: the delivery; None: it is gone.
        is_ours: whether it is what was decided here.
        unknown: how many sends that no one knows the outcome of came with it.
    """

    delivery: Delivery | None
    is_ours: bool
    unknown: int = 0


class DeliveryRecord:
    """One delivery in the store, as it is known here.

    Args:
        engine: the parts.
        ref: its document.
    """

    def __init__(self, engine: Engine, ref: Ref) -> None:
        self._engine = engine
        self._ref = ref
        self._known: Snapshot | None = None

    def read(self) -> tuple[Delivery, datetime] | None:
        """Return the delivery and the store's time; it is read only where it is not known.

        Raises:
            StoreUnavailableError: the store did not answer.
            UnreadableDeliveryError: it is none that this version can read.
        """
        found = self._known or self._engine.documents.get(self._ref)
        if found is None:
            return None
        self._known = found
        passed = self._engine.clock.monotonic() - found.monotonic
        return delivery_of(self._ref, found.document), found.read_at + timedelta(seconds=passed)

    def if_due(self, rule: Rule) -> Written:
        """Apply a rule to the delivery, if it is still due."""

        def is_due(current: Delivery, now: datetime) -> bool:
            return standing(current, now) is Standing.DUE

        return self._commit(rule, is_due, lambda _: False)

    def if_held(self, claimed: Delivery, rule: Rule) -> Written:
        """Apply a rule to the delivery, if no one has taken the claim away."""

        def is_held(current: Delivery, _: datetime) -> bool:
            return delivery_rules.is_held(current, claimed)

        was_recorded = partial(delivery_rules.is_recorded, claimed=claimed)
        return self._commit(rule, is_held, was_recorded)

    def _commit(
        self,
        rule: Rule,
        may: Callable[[Delivery, datetime], bool],
        was_done: Callable[[Delivery], bool],
    ) -> Written:
        """Apply a rule in one commit, with the event that it leaves.

        Args:
            rule: what becomes of the delivery.
            may: whether the rule may be applied to what is stored.
            was_done: whether what is stored is what the rule made, in a commit whose answer was
                lost.
        """

        def decide(document: Document | None, now: datetime) -> Write[Written]:
            if document is None:
                return Write(Written(None, is_ours=False))
            current = delivery_of(self._ref, document)
            if not may(current, now):
                return Write(Written(current, is_ours=was_done(current)))
            after = rule(current, now)
            event = _event_of(after, now)
            puts = None if event is None else traced(after, event)
            written = Written(after, is_ours=True, unknown=after.unknown - current.unknown)
            return Write(written, StoredDocument(after), puts=puts)

        documents, known = self._engine.documents, self._known
        self._known = None  # until a commit stands, no one knows
        try:
            committed = documents.transact(self._ref, decide, if_version=known, within=_WITHIN_S)
        except VersionConflictError:
            committed = documents.transact(self._ref, decide, within=_WITHIN_S)
        self._known = committed.snapshot
        self._report(committed.answer)
        return committed.answer

    def _report(self, written: Written) -> None:
        after = written.delivery
        if after is None or not written.is_ours:
            return
        if written.unknown:
            self._engine.listeners.report(unknown_send_report(after))
        event = _event_of(after, after.updated_at)
        if event is not None:
            self._engine.listeners.report(delivery_report(after, event))


def _event_of(delivery: Delivery, now: datetime) -> TraceEvent | None:
    if delivery.state is DeliveryState.ANNOUNCED:
        return sent_event(delivery, now)
    return given_up_event(delivery, now) if delivery.state is DeliveryState.GIVEN_UP else None


# The breaker of a channel, as it is shared by all processes through the store.
#
# What is known of it here is believed for some seconds, so that it costs nearly no reads. It is
# for the channel's own good: a breaker that cannot be written holds up no announcement.


#: So long a breaker that was read is believed.
BELIEVED_S: Final = 5.0
#: The longest time for a note of a channel's result: no one waits for it.
_NOTED_WITHIN_S: Final = 2.0


def resting_until(engine: Engine, channel: str, now: datetime) -> datetime | None:
    """Return until when a channel rests, and nothing is sent to it; None: the caller may send.

    A half-open breaker lets one pass at a time.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    breaker = _known(engine, channel)
    if breaker.state(now) is not BreakerState.HALF_OPEN:
        return breaker.open_until

    def decide(document: Document | None, at: datetime) -> Write[tuple[Breaker, bool]]:
        current = breaker_of(channel, document)
        through = let_one_through(current, at, rules=engine.rules.delivery)
        if through is None:
            return Write((current, False))
        return Write((through, True), StoredDocument(through))

    breaker, is_through = engine.documents.transact(breaker_ref(channel), decide).answer
    _remember(engine, breaker)
    return None if is_through else breaker.open_until


def note_failure(engine: Engine, channel: str) -> None:
    """Note that a send to a channel failed."""
    _note(engine, channel, partial(after_failure, rules=engine.rules.delivery))


def note_answer(engine: Engine, channel: str) -> None:
    """Note that a channel's provider answers; this costs nothing where it did before."""
    known = engine.channels.breakers.get(channel)
    if known is not None and not known.breaker.is_new:
        _note(engine, channel, after_answer)


def _note(engine: Engine, channel: str, rule: Callable[[Breaker, datetime], Breaker]) -> None:
    def decide(document: Document | None, now: datetime) -> Write[Breaker]:
        after = rule(breaker_of(channel, document), now)
        return Write(after, StoredDocument(after))

    ref = breaker_ref(channel)
    try:
        after = engine.documents.transact(ref, decide, within=_NOTED_WITHIN_S).answer
    except StoreUnavailableError as error:
        engine.listeners.log(f"what channel {channel} did is not counted: {error}")
    else:
        _remember(engine, after)


def _known(engine: Engine, channel: str) -> Breaker:
    known = engine.channels.breakers.get(channel)
    if known is not None and engine.clock.monotonic() - known.monotonic < BELIEVED_S:
        return known.breaker
    found = engine.documents.get(breaker_ref(channel))
    return _remember(engine, breaker_of(channel, None if found is None else found.document))


def _remember(engine: Engine, breaker: Breaker) -> Breaker:
    engine.channels.breakers[breaker.channel] = KnownBreaker(breaker, engine.clock.monotonic())
    return breaker
