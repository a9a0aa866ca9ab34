"""Tells one channel of one announcement: claims it, sends it, and records what came of it.

The guard: two who come by at once send once, as one of them gets the claim. A claim is short, and
fenced: a sender that comes back after its claim was taken away neither sends nor records. A send
without a record is counted as unknown, and repeated under the same key.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    wait_exponential,
)

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
from leasehold.domain.delivery import (
    Delivery,
    DeliveryState,
    delivery_of,
    delivery_ref,
    is_occurrence,
)
from leasehold.domain.delivery_rules import (
    GiveUpReason,
    Standing,
    given_up_event,
    sent_event,
    standing,
    traced,
)
from leasehold.domain.event_message import EventMessage
from leasehold.domain.manifest import is_run_id
from leasehold.domain.stored import Document, Ref, StoredDocument, Write
from leasehold.domain.trace import TraceEvent
from leasehold.errors import (
    ChannelRefusedError,
    ChannelUnansweredError,
    ChannelUnavailableError,
    LeaseholdError,
    StoreUnavailableError,
    UnreadableDeliveryError,
    VersionConflictError,
)
from leasehold.frozen import dataclass
from leasehold.ports.documents import Snapshot
from leasehold.registry.channels import ChannelEntry, is_channel_name
from leasehold.services.engine import Engine, KnownBreaker
from leasehold.services.reporting import delivery_report, unknown_send_report

# The record of a delivery: read once, and changed by rules, each in one commit with its event.


#: How long one commit may take.
_COMMIT_TIMEOUT_S: Final = 5.0

#: What becomes of a delivery, at the store's time.
Rule = Callable[[Delivery, datetime], Delivery]


@dataclass(frozen=True, slots=True)
class Written:
    """The stored state of a delivery.

    Args:
        delivery: the delivery; None: it is gone.
        is_ours: whether it is what was decided here.
        unknown: how many sends with an unknown result it adds.
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
        """Apply a rule to the delivery, if the claim is still held."""

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
        self._known = None  # unknown until a commit succeeds
        try:
            committed = documents.transact(
                self._ref, decide, if_version=known, within=_COMMIT_TIMEOUT_S
            )
        except VersionConflictError:
            committed = documents.transact(self._ref, decide, within=_COMMIT_TIMEOUT_S)
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
BREAKER_BELIEVED_S: Final = 5.0
#: The longest time for a note of a channel's result; nothing waits for it.
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
    if known is not None and engine.clock.monotonic() - known.monotonic < BREAKER_BELIEVED_S:
        return known.breaker
    found = engine.documents.get(breaker_ref(channel))
    return _remember(engine, breaker_of(channel, None if found is None else found.document))


def _remember(engine: Engine, breaker: Breaker) -> Breaker:
    engine.channels.breakers[breaker.channel] = KnownBreaker(breaker, engine.clock.monotonic())
    return breaker


#: The waits of a record that the store does not take.
_RECORD_WAITS: Final = wait_exponential(multiplier=0.1, max=2)


class DeliveryOutcome(StrEnum):
    """What became of a message; each is an end of that message, and only what is raised is not."""

    ANNOUNCED = "announced"
    GIVEN_UP = "given_up"
    DUE_LATER = "due_later"  # its alarm brings it back
    CLAIMED = "claimed"  # another process sends it now
    DUPLICATE = "duplicate"  # it was announced, or given up, before
    UNKNOWN = "unknown_delivery"  # nothing is due to the channel
    UNREADABLE = "unreadable_delivery"  # no message can help with that


@dataclass(frozen=True, slots=True)
class DeliveryHint:
    """What a message says: which delivery to look at, and nothing that is believed."""

    run_id: str
    occurrence: str
    channel: str


#: The states of a delivery in which there is nothing to do now.
_LEFT: Final[Mapping[Standing, DeliveryOutcome]] = {
    Standing.OVER: DeliveryOutcome.DUPLICATE,
    Standing.DUE_LATER: DeliveryOutcome.DUE_LATER,
    Standing.CLAIMED: DeliveryOutcome.CLAIMED,
}
_DONE: Final[Mapping[DeliveryState, DeliveryOutcome]] = {
    DeliveryState.ANNOUNCED: DeliveryOutcome.ANNOUNCED,
    DeliveryState.GIVEN_UP: DeliveryOutcome.GIVEN_UP,
    DeliveryState.DUE: DeliveryOutcome.DUE_LATER,
}


def deliver(
    engine: Engine, hint: DeliveryHint, *, within: timedelta | None = None
) -> DeliveryOutcome:
    """Announce what is due.

    Args:
        engine: the parts.
        hint: what a message said.
        within: how long the call may take with further tries and the waits before them; zero:
            one try. None: PIPELINE_DELIVERY_CALL_S.

    Raises:
        StoreUnavailableError: it is not known what became of it; the message has to come again.
    """
    is_name = is_run_id(hint.run_id) and is_occurrence(hint.occurrence)
    if not (is_name and is_channel_name(hint.channel)):
        return DeliveryOutcome.UNKNOWN
    call = _Call(engine, hint, engine.rules.delivery.call_time if within is None else within)
    tries = Retrying(
        retry=retry_if_result(call.is_to_be_tried_again),
        wait=call.wait,
        stop=call.has_no_time_for,
        sleep=engine.threads.pause,
        retry_error_callback=lambda _: DeliveryOutcome.DUE_LATER,
    )
    try:
        return tries(call.attempt)
    except UnreadableDeliveryError as error:
        engine.listeners.log(str(error))
        return DeliveryOutcome.UNREADABLE


class _Call:
    """One message, as far as one call takes it. Each try is its own claim."""

    def __init__(self, engine: Engine, hint: DeliveryHint, within: timedelta) -> None:
        self._engine = engine
        self._rules = engine.rules.delivery
        self._channel = hint.channel
        self._record = DeliveryRecord(
            engine, delivery_ref(hint.run_id, hint.occurrence, hint.channel)
        )
        self._over_at = engine.clock.monotonic() + within.total_seconds()
        self._next: timedelta | None = None  # the wait before the next try

    def is_to_be_tried_again(self, _: DeliveryOutcome) -> bool:
        """Return whether there is a next try, which this call may wait for."""
        return self._next is not None

    def wait(self, _: RetryCallState) -> float:
        """Return how many seconds to wait for the next try."""
        return 0.0 if self._next is None else self._next.total_seconds()

    def has_no_time_for(self, state: RetryCallState) -> bool:
        """Return whether the next try does not fit into the time of the call."""
        end = self._engine.clock.monotonic() + state.upcoming_sleep
        return end + self._rules.timeout.total_seconds() > self._over_at

    def attempt(self) -> DeliveryOutcome:
        """Claim, send and record, where the delivery is due."""
        self._next = None
        found = self._record.read()
        if found is None:
            return DeliveryOutcome.UNKNOWN
        delivery, now = found
        left = _LEFT.get(standing(delivery, now))
        if left is not None:
            return left
        entry = self._engine.catalog.channels.get(self._channel)
        if entry is None:
            rule = partial(delivery_rules.without_channel, rules=self._rules)
            return self._unsent(self._record.if_due(rule))
        until = resting_until(self._engine, self._channel, now)
        if until is not None:
            postponed = partial(delivery_rules.postponed, until=until, rules=self._rules)
            return _outcome(self._record.if_due(postponed))
        return self._claim_and_send(entry)

    def _claim_and_send(self, entry: ChannelEntry) -> DeliveryOutcome:
        clock = self._engine.clock
        sent_by = clock.monotonic() + self._rules.claim_ttl.total_seconds()
        rule = partial(self._claim, claim_id=clock.new_id())
        written = self._record.if_due(rule)
        claimed = written.delivery
        if not written.is_ours or claimed is None or claimed.state is not DeliveryState.CLAIMED:
            return self._unsent(written)
        if clock.monotonic() + self._rules.timeout.total_seconds() >= sent_by:
            return self._release(claimed)  # this process was frozen meanwhile
        return self._send(entry, claimed, sent_by)

    def _unsent(self, written: Written) -> DeliveryOutcome:
        """Return what became of a delivery without a send; one that is given up counts."""
        outcome, after = _outcome(written), written.delivery
        if after is not None and written.is_ours and outcome is DeliveryOutcome.GIVEN_UP:
            self._engine.telemetry.sent(after, outcome.value, 0.0)
        return outcome

    def _claim(self, delivery: Delivery, now: datetime, *, claim_id: str) -> Delivery:
        if delivery_rules.is_hopeless(delivery, now, self._rules):
            return delivery_rules.cut_short(delivery, now)
        holder = self._engine.process.holder
        return delivery_rules.claim(
            delivery, now, claim_id=claim_id, holder=holder, rules=self._rules
        )

    def _send(self, entry: ChannelEntry, claimed: Delivery, over_at: float) -> DeliveryOutcome:
        """Send what is claimed, and record what came of it before the claim runs out."""
        engine, timeout = self._engine, self._rules.timeout.total_seconds()
        begun = engine.clock.monotonic()
        send = partial(_open_and_send, engine, entry, claimed, timeout)
        answers = True
        try:
            message_id = engine.channels.send(self._channel, send, timeout=timeout)
            rule: Rule = partial(delivery_rules.announced, message_id=message_id)
        except ChannelRefusedError as error:
            rule = partial(
                delivery_rules.given_up, why=GiveUpReason.CHANNEL_REFUSED, error=error.message
            )
        except ChannelUnavailableError as error:
            rule, answers = self._rule_after(error, claimed), False
        except StoreUnavailableError:
            self._release(claimed)
            raise
        took = engine.clock.monotonic() - begun
        outcome = self._note(claimed, rule, over_at)
        engine.telemetry.sent(claimed, outcome.value, took)
        (note_answer if answers else note_failure)(engine, self._channel)
        return outcome

    def _rule_after(self, error: ChannelUnavailableError, claimed: Delivery) -> Rule:
        jitter = zlib.crc32(f"{claimed.key}:{claimed.token}".encode()) / 2**32
        wait = delivery_rules.wait_after(
            claimed.tries, self._rules, jitter=jitter, retry_after=error.retry_after
        )
        is_unanswered = isinstance(error, ChannelUnansweredError)
        return partial(
            delivery_rules.tried, error=error.message, wait=wait, is_unanswered=is_unanswered
        )

    def _note(self, claimed: Delivery, rule: Rule, over_at: float) -> DeliveryOutcome:
        """Record what came of a send; a store that does not take it is asked while it is claimed.

        A result that is not recorded by then is unknown to the next sender.
        """
        clock = self._engine.clock
        insist = Retrying(
            retry=retry_if_exception_type(StoreUnavailableError),
            wait=_RECORD_WAITS,
            stop=lambda state: clock.monotonic() + state.upcoming_sleep >= over_at,
            sleep=self._engine.threads.pause,
            reraise=True,
        )
        written = insist(self._record.if_held, claimed, rule)
        after = written.delivery
        if after is None or not written.is_ours:
            problem = "its claim was taken away meanwhile, so it counts as unknown"
            about = claimed.delivery_id
            self._engine.listeners.log(f"what came of a send of {about} is not recorded: {problem}")
            return _outcome(written)
        if (
            after.state is DeliveryState.DUE
            and after.not_before
            and after.tries < self._rules.tries
        ):
            self._next = after.not_before - after.updated_at
        return _outcome(written)

    def _release(self, claimed: Delivery) -> DeliveryOutcome:
        """Take back a claim that has sent nothing; where that fails, it runs out."""
        try:
            return _outcome(self._record.if_held(claimed, delivery_rules.released))
        except StoreUnavailableError as error:
            self._engine.listeners.log(
                f"delivery {claimed.delivery_id} stays claimed for now: {error}"
            )
            return DeliveryOutcome.CLAIMED


def _outcome(written: Written) -> DeliveryOutcome:
    stored = written.delivery
    if stored is None:
        return DeliveryOutcome.UNKNOWN
    if written.is_ours:
        return _DONE[stored.state]
    return _LEFT.get(standing(stored, stored.updated_at), DeliveryOutcome.DUE_LATER)


def _open_and_send(
    engine: Engine, entry: ChannelEntry, delivery: Delivery, timeout: float
) -> object:
    """Send; what keeps a channel from being opened is known not to have sent anything."""
    try:
        channel = engine.channels.open(entry)
    except LeaseholdError:
        raise
    except Exception as error:
        problem = f"opening it raised {type(error).__name__}: {error}"
        raise ChannelUnavailableError(channel=entry.name, problem=problem) from error
    return channel.send(delivery, timeout=timeout)


# A message of the bus within this process: one try now, and the next at its time.


#: The queue waits between tries, and not the thread that makes them: it has other messages too.
_ONE_TRY: Final = timedelta()

_UNFINISHED: Final = (DeliveryOutcome.DUE_LATER, DeliveryOutcome.CLAIMED)


def deliver_message(engine: Engine, message: EventMessage) -> datetime | None:
    """Announce what is due; return when to look again, None: it is over.

    Raises:
        StoreUnavailableError: it is not known what became of it.
        UnreadableDeliveryError: it was edited meanwhile.
    """
    about = message.delivery
    hint = DeliveryHint(about.run_id, about.occurrence, about.channel)
    if deliver(engine, hint, within=_ONE_TRY) not in _UNFINISHED:
        return None
    return _next_look(engine, hint)


def _next_look(engine: Engine, hint: DeliveryHint) -> datetime | None:
    """Return when a delivery is due again, or the claim on it is over."""
    ref = delivery_ref(hint.run_id, hint.occurrence, hint.channel)
    found = engine.documents.get(ref)
    if found is None:
        return None
    delivery = delivery_of(ref, found.document)
    if delivery.state is DeliveryState.CLAIMED and delivery.claim is not None:
        return delivery.claim.expires_at
    return delivery.not_before or delivery.alarm_at
