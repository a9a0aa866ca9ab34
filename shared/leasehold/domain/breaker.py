"""Circuit breakers: a channel that fails again and again rests (`breakers/{channel}`).

One document a channel, for all processes. Closed: all senders send. Open: none does, until
`open_until`. From then on it is half-open: who takes part in it moves `open_until` on by the time
of one send, and is the only one to send meanwhile. So a probe that dies lets the next one through.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime, ValidationError

from leasehold.domain.delivery_rules import DeliveryRules
from leasehold.domain.stored import Count, Document, Ref, Stored, replace
from leasehold.domain.timestamps import is_ahead

#: None is open for longer: whatever says so was edited, or written by a clock that was wrong, and
#: one send finds out how the channel is.
MAX_REST: Final = timedelta(days=2)


class BreakerState(StrEnum):
    """Whether anything is sent to a channel."""

    CLOSED = "closed"  # all
    OPEN = "open"  # nothing
    HALF_OPEN = "half_open"  # one, whose outcome decides


class Breaker(Stored):
    """The breaker of one channel."""

    channel: str
    failures: Count = 0  # in a row
    open_until: AwareDatetime | None = None  # None: it is closed
    updated_at: AwareDatetime | None = None

    @property
    def is_new(self) -> bool:
        """Whether nothing has failed since it was closed."""
        return self.failures == 0 and self.open_until is None

    def state(self, now: datetime) -> BreakerState:
        """Return its state at this time."""
        if self.open_until is None:
            return BreakerState.CLOSED
        is_open = now < self.open_until <= now + MAX_REST
        if self.updated_at is not None and is_ahead(self.updated_at, now):
            is_open = False  # one send finds out, as above
        return BreakerState.OPEN if is_open else BreakerState.HALF_OPEN


def breaker_ref(channel: str) -> Ref:
    """Return the name of a breaker's document."""
    return Ref("breakers", channel)


def breaker_of(channel: str, document: Document | None) -> Breaker:
    """Return the breaker that a document is; a new one where it cannot be read."""
    try:
        found = Breaker.model_validate({"channel": channel} if document is None else document)
    except ValidationError:  # it was edited: it must hold up no announcement
        return Breaker(channel=channel)
    return found if found.channel == channel else Breaker(channel=channel)


def let_one_through(breaker: Breaker, now: datetime, *, rules: DeliveryRules) -> Breaker | None:
    """Return the half-open breaker once it let one through; None: not now, or there is no need."""
    if breaker.state(now) is not BreakerState.HALF_OPEN:
        return None
    return replace(breaker, open_until=now + rules.claim_ttl, updated_at=now)


def after_failure(breaker: Breaker, now: datetime, *, rules: DeliveryRules) -> Breaker:
    """Return the breaker after a send that failed."""
    failures = breaker.failures + 1
    is_open = failures >= rules.channel_failures
    open_until = now + rules.channel_rest if is_open else None
    return replace(breaker, failures=failures, open_until=open_until, updated_at=now)


def after_answer(breaker: Breaker, now: datetime) -> Breaker:
    """Return the breaker after the provider answered, be it that it refuses one announcement."""
    return replace(breaker, failures=0, open_until=None, updated_at=now)
