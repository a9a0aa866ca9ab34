"""The breaker of a channel, as it is shared by all processes through the store.

What is known of it here is believed for some seconds, so that it costs nearly no reads. It is for
the channel's own good: a breaker that cannot be written holds up no announcement.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from leasehold.domain.breaker import (
    Breaker,
    BreakerState,
    after_answer,
    after_failure,
    breaker_of,
    breaker_ref,
    let_one_through,
)
from leasehold.domain.stored import Document, StoredDocument, Write
from leasehold.errors import StoreUnavailableError
from leasehold.services.engine import Engine, KnownBreaker

#: So long a breaker that was read is believed.
BELIEVED_S: Final = 5.0
#: So long a note of what a channel did may take: nobody waits for it.
_NOTED_WITHIN_S: Final = 2.0


def resting_until(engine: Engine, channel: str, now: datetime) -> datetime | None:
    """Return until when a channel rests, and nothing is sent to it; None: whoever asks may send.

    Of a half-open breaker one is told so at a time.

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
