"""What becomes of a delivery: pure rules, each from what is stored and the store's time.

The sender has claimed the delivery before, and records the result with that claim. A claim
that is taken away, because it ran out, may have sent: it counts as `unknown`. A
second message of one round is possible only where the record says `unknown`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from pydantic.alias_generators import to_camel

from leasehold.domain.delivery import Claim, Delivery, DeliveryState
from leasehold.domain.retry import doubling, growing
from leasehold.domain.stored import Document, Ref, StoredDocument, replace
from leasehold.domain.trace import TraceEvent, TraceType, telling_ref
from leasehold.frozen import dataclass

#: Jitter adds at most this part of a wait.
_JITTER: Final = 0.25

#: What a provider asks to wait is believed up to here.
MAX_PROVIDER_WAIT: Final = timedelta(days=1)

_CUT_SHORT: Final = "the sender did not record the result before the claim ran out"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRules:
    """How patient deliveries are.

    Args:
        tries: so many tries of a round are made by the call that began it, if its time allows.
        first_wait: after the first failure.
        multiplier: how much longer each further wait is than the one before.
        longest_wait: no wait between two tries is longer, but for what a provider asks for.
        timeout: of one send.
        call_time: how long one call may take, with all its tries.
        give_up_after: a try that fails after that is the last one.
        channel_failures: after so many in a row a channel rests: nothing is sent to it.
        channel_rest: so long it rests.
        record_time: what a claim leaves for the record of its send.
    """

    tries: int = 3
    first_wait: timedelta = timedelta(seconds=5)
    multiplier: float = 2.0
    longest_wait: timedelta = timedelta(minutes=10)
    timeout: timedelta = timedelta(seconds=10)
    call_time: timedelta = timedelta(seconds=60)
    give_up_after: timedelta = timedelta(hours=24)
    channel_failures: int = 5
    channel_rest: timedelta = timedelta(seconds=60)
    record_time: timedelta = timedelta(seconds=10)

    @property
    def claim_ttl(self) -> timedelta:
        """How long a claim runs: longer than a send, and what is left is for its record."""
        return 2 * self.timeout + self.record_time


class Standing(StrEnum):
    """The state of a delivery for the next process that looks at it."""

    DUE = "due"  # it can be claimed
    DUE_LATER = "due_later"
    CLAIMED = "claimed"  # by a sender whose claim still runs
    OVER = "over"  # announced, or given up


class GiveUpReason(StrEnum):
    """Why a delivery was given up, in words."""

    CHANNEL_REFUSED = "the channel refuses it for good"
    OUT_OF_TIME = "it was tried for as long as it may be"
    UNKNOWN_CHANNEL = "the catalog does not know the channel"


def standing(delivery: Delivery, now: datetime) -> Standing:
    """Return the state of the delivery for a process that looks at it at this time."""
    if delivery.state in (DeliveryState.ANNOUNCED, DeliveryState.GIVEN_UP):
        return Standing.OVER
    if delivery.state is DeliveryState.CLAIMED:
        is_over = delivery.claim is None or delivery.claim.expires_at <= now
        return Standing.DUE if is_over else Standing.CLAIMED
    is_later = delivery.not_before is not None and delivery.not_before > now
    return Standing.DUE_LATER if is_later else Standing.DUE


def claim(
    delivery: Delivery, now: datetime, *, claim_id: str, holder: str, rules: DeliveryRules
) -> Delivery:
    """Have the holder send it: this is a try, whatever comes of it."""
    expires_at = now + rules.claim_ttl
    return replace(
        _without_claim(delivery),
        state=DeliveryState.CLAIMED,
        updated_at=now,
        claim=Claim(claim_id=claim_id, holder=holder, expires_at=expires_at),
        alarm_at=expires_at,
        not_before=None,
        token=delivery.token + 1,
        tries=delivery.tries + 1,
    )


def is_held(current: Delivery, claimed: Delivery) -> bool:
    """Return whether a claim is still the one that is stored."""
    mine, stored = claimed.claim, current.claim
    if mine is None or stored is None or not _is_same(current, claimed):
        return False
    return stored.claim_id == mine.claim_id


def is_recorded(current: Delivery, claimed: Delivery) -> bool:
    """Return whether what came of a claim is stored already: an answer of the store was lost."""
    return _is_same(current, claimed) and current.claim is None


def released(delivery: Delivery, now: datetime) -> Delivery:
    """Return the delivery of a claim that has certainly sent nothing: it was no try."""
    return replace(
        delivery,
        state=DeliveryState.DUE,
        updated_at=now,
        claim=None,
        alarm_at=now,
        tries=delivery.tries - 1,
    )


def announced(delivery: Delivery, now: datetime, *, message_id: str | None) -> Delivery:
    """Return the delivery that the provider took."""
    return replace(
        delivery,
        state=DeliveryState.ANNOUNCED,
        updated_at=now,
        announced_at=now,
        message_id=message_id,
        claim=None,
        alarm_at=None,
        last_error=None,
    )


def tried(
    delivery: Delivery, now: datetime, *, error: str, wait: timedelta, is_unanswered: bool = False
) -> Delivery:
    """Return the delivery after a try that failed or whose result is unknown.

    Args:
        delivery: the delivery, claimed.
        now: the store's time.
        error: what the provider said.
        wait: until the next try; see `wait_after`.
        is_unanswered: the provider may have taken it.
    """
    after = replace(delivery, unknown=delivery.unknown + is_unanswered, last_error=error)
    if now >= delivery.give_up_at:
        return given_up(after, now, why=GiveUpReason.OUT_OF_TIME)
    return _due(after, now, now + wait)


def given_up(
    delivery: Delivery, now: datetime, *, why: GiveUpReason, error: str | None = None
) -> Delivery:
    """Return the delivery that is not tried any more."""
    return replace(
        _without_claim(delivery, is_counted=False),
        state=DeliveryState.GIVEN_UP,
        updated_at=now,
        given_up_at=now,
        given_up_why=why.value,
        last_error=error or delivery.last_error,
        alarm_at=None,
        not_before=None,
    )


def without_channel(delivery: Delivery, now: datetime, *, rules: DeliveryRules) -> Delivery:
    """Return the delivery to a channel that this deploy does not know; another one may.

    Each wait is as long as all before it: a deploy that is under way costs little time.
    """
    error = f"the catalog has no channel {delivery.channel}"
    wait = max(_wait_so_far(delivery, now, rules), rules.first_wait)
    if now >= delivery.give_up_at:
        delivery = _without_claim(delivery)
        delivery = replace(delivery, token=delivery.token + 1)  # its event replaces no request's
        return given_up(delivery, now, why=GiveUpReason.UNKNOWN_CHANNEL, error=error)
    return _due(replace(_without_claim(delivery), last_error=error), now, now + wait)


def postponed(
    delivery: Delivery, now: datetime, *, until: datetime, rules: DeliveryRules
) -> Delivery:
    """Return the delivery to a channel that rests: nothing was tried.

    Each wait is as long as all before it, or longer: thousands that wait cost little.
    Where it was tried before, and its time is over, it is given up.
    """
    if now >= delivery.give_up_at and delivery.tries:
        return given_up(_without_claim(delivery), now, why=GiveUpReason.OUT_OF_TIME)
    return _due(_without_claim(delivery), now, max(until, now + _wait_so_far(delivery, now, rules)))


def is_hopeless(delivery: Delivery, now: datetime, rules: DeliveryRules) -> bool:
    """Return whether each who sent it was cut short, for as long as it may be tried."""
    is_cut_short = delivery.state is DeliveryState.CLAIMED
    return is_cut_short and now >= delivery.give_up_at and delivery.tries >= rules.tries


def cut_short(delivery: Delivery, now: datetime) -> Delivery:
    """Return the delivery that ends every sender of it."""
    return given_up(_without_claim(delivery), now, why=GiveUpReason.OUT_OF_TIME)


def published_again(
    delivery: Delivery, now: datetime, *, grace: timedelta, longest: timedelta
) -> Delivery:
    """Return the delivery whose message was published again: its alarm is moved on."""
    wait = doubling(grace, max(grace, longest)).wait(delivery.published + 1)
    return replace(delivery, alarm_at=now + wait, published=delivery.published + 1)


def from_now(delivery: Delivery, now: datetime) -> Delivery:
    """Return the delivery with its waits as long as they were when it was written last: from now.

    For one that was written by a clock that was set back since. Its sender keeps it.
    """
    by, held = now - delivery.updated_at, delivery.claim
    return replace(
        delivery,
        updated_at=now,
        alarm_at=None if delivery.alarm_at is None else delivery.alarm_at + by,
        not_before=None if delivery.not_before is None else delivery.not_before + by,
        give_up_at=delivery.give_up_at + by,
        claim=None if held is None else replace(held, expires_at=held.expires_at + by),
    )


def requested(
    delivery: Delivery, now: datetime, *, grace: timedelta, rules: DeliveryRules
) -> Delivery:
    """Return the delivery that a person wants made, now.

    One that is over begins another round, whose key the provider has not seen. One that is still
    due keeps its key: it may have been taken, and the provider can tell.
    """
    if standing(delivery, now) is Standing.OVER:
        delivery = replace(
            delivery,
            round=delivery.round + 1,
            message_id=None,
            announced_at=None,
            given_up_at=None,
            given_up_why=None,
            last_error=None,
        )
    return replace(
        _without_claim(delivery),
        state=DeliveryState.DUE,
        updated_at=now,
        requested_at=now,
        alarm_at=now + grace,
        not_before=None,
        give_up_at=now + rules.give_up_after,
        token=delivery.token + 1,  # the earlier sender records nothing of this round
        tries=0,
    )


def wait_after(
    tries: int, rules: DeliveryRules, *, jitter: float, retry_after: timedelta | None = None
) -> timedelta:
    """Return how long to wait after this many tries of a round.

    Args:
        tries: 1 or more.
        rules: the waits.
        jitter: from 0 to 1.
        retry_after: what the provider asks for.
    """
    wait = growing(rules.first_wait, rules.multiplier, rules.longest_wait, tries)
    wait *= 1 + _JITTER * jitter
    return max(wait, min(retry_after or timedelta(), MAX_PROVIDER_WAIT))


def _wait_so_far(delivery: Delivery, now: datetime, rules: DeliveryRules) -> timedelta:
    return min(now - delivery.due_since, rules.longest_wait)


def _due(delivery: Delivery, now: datetime, at: datetime) -> Delivery:
    return replace(
        delivery, state=DeliveryState.DUE, updated_at=now, claim=None, not_before=at, alarm_at=at
    )


def _without_claim(delivery: Delivery, *, is_counted: bool = True) -> Delivery:
    """Return the delivery without the claim of a sender that recorded no result."""
    if delivery.state is not DeliveryState.CLAIMED or not is_counted:
        return replace(delivery, claim=None)
    return replace(
        delivery,
        claim=None,
        token=delivery.token + 1,
        unknown=delivery.unknown + 1,
        last_error=_CUT_SHORT,
    )


def _is_same(current: Delivery, claimed: Delivery) -> bool:
    return (current.mark, current.token) == (claimed.mark, claimed.token)


# The trace events of deliveries, each stored in the commit of what it tells.


_CODES: Final = {str(reason): reason.name.lower() for reason in GiveUpReason}


def sent_event(delivery: Delivery, now: datetime) -> TraceEvent:
    """Return the event of a delivery that was announced."""
    return _event(
        delivery,
        TraceType.ANNOUNCEMENT_SENT,
        now,
        message_id=delivery.message_id,
        tries=delivery.tries,
        unknown=delivery.unknown,
        seconds_since_due=_seconds_since_due(delivery, now),
    )


def given_up_event(delivery: Delivery, now: datetime) -> TraceEvent:
    """Return the event of a delivery that was given up."""
    why = delivery.given_up_why or ""
    return _event(
        delivery,
        TraceType.ANNOUNCEMENT_GIVEN_UP,
        now,
        reason=_CODES.get(why, why),
        detail=delivery.last_error,
        tries=delivery.tries,
        unknown=delivery.unknown,
        seconds_since_due=_seconds_since_due(delivery, now),
    )


def requested_event(delivery: Delivery, now: datetime, actor: str, reason: str) -> TraceEvent:
    """Return the event of a delivery that a person wants made."""
    return _event(
        delivery,
        TraceType.ANNOUNCEMENT_REQUESTED,
        now,
        actor=actor,
        reason=reason or None,
        round=delivery.round,
    )


def traced(delivery: Delivery, event: TraceEvent) -> dict[Ref, Document]:
    """Return an event as it is put in the commit of a delivery: one is put under each token."""
    name = f"{delivery.occurrence}-{delivery.channel}-{delivery.token}"
    return {telling_ref(delivery.run_id, delivery.mark, name): StoredDocument(event)}


def _event(delivery: Delivery, type_: TraceType, now: datetime, **facts: Any) -> TraceEvent:
    further = {to_camel(name): fact for name, fact in facts.items() if fact is not None}
    return TraceEvent.model_validate(
        {
            "type": type_,
            "at": now,
            "step": delivery.step,
            "channel": delivery.channel,
            "runEvent": str(delivery.event),
            "occurrence": delivery.occurrence,
            **further,
        }
    )


def _seconds_since_due(delivery: Delivery, now: datetime) -> float:
    return round(max(0.0, (now - delivery.due_since).total_seconds()), 3)
