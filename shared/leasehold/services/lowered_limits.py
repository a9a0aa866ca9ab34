"""Limits that adapt, in the store: a provider that takes no more for now halves one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from leasehold.attempt.attempt import Attempt
from leasehold.domain.limit import Bound, Limit
from leasehold.domain.lowered_limit import LOWERED, LoweredLimit, lowered, lowered_ref
from leasehold.domain.manifest import read_as, to_document
from leasehold.domain.stored import Document, Write
from leasehold.domain.timestamps import stamp
from leasehold.domain.trace import TraceType, event_of, lowering_ref
from leasehold.errors import StoreUnavailableError, UnreadableRunError
from leasehold.ports.documents import Query
from leasehold.services.engine import Engine

#: So many keys are looked at for a list.
_MAX_KEYS_READ: Final = 1000


def in_force(engine: Engine, bound: Bound) -> Bound:
    """Return a limit with what holds of it now; only one that adapts is looked up."""
    found = engine.documents.get(lowered_ref(bound.key)) if bound.limit.adaptive else None
    if found is None:
        return bound
    known = read_as(LoweredLimit, found.ref.id, found.document)
    if known.is_over(found.read_at):
        return bound
    return bound._replace(lowered_to=known.most_at(found.read_at, bound.most))


def words_of_lowered(engine: Engine, bound: Bound) -> Iterator[str]:
    """Yield that a limit is lowered, as a sentence."""
    found = engine.documents.get(lowered_ref(bound.key)) if bound.limit.adaptive else None
    if found is not None:
        known = read_as(LoweredLimit, found.ref.id, found.document)
        if words := known.words(found.read_at, bound.most, is_rate=bound.is_rate):
            yield words


def lowered_now(engine: Engine) -> Iterator[dict[str, Any]]:
    """Yield each key whose limit is lowered now, and how far; where none adapts nothing is read.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    if not any(limit.adaptive for entry in engine.catalog.steps for limit in entry.limits):
        return
    for found in engine.documents.query(Query("slots", id_prefix=LOWERED, limit=_MAX_KEYS_READ)):
        try:
            known = read_as(LoweredLimit, found.ref.id, found.document)
        except UnreadableRunError:  # a person edited it
            continue
        share = known.share_at(found.read_at)
        if share < 1:
            at = {"loweredAt": known.lowered_at, "growsFrom": known.grows_from}
            yield {"key": known.key, "share": share, **at}


def lower(
    engine: Engine,
    attempt: Attempt,
    limit: Limit,
    key: str,
    *,
    began: datetime,
    retry_after_s: float,
) -> None:
    """Halve a limit that adapts, once its provider took no more; the trace of the run says so.

    An attempt that has lost its lease halves nothing, by the store's time. Where the store is away,
    the next one that is refused does it.

    Args:
        engine: the parts.
        attempt: what was refused.
        limit: as its entry has it.
        key: for the run.
        began: when the attempt, or its block, had it.
        retry_after_s: for how long the provider takes no more.
    """
    lease, run = attempt.manifest.position.lease, attempt.manifest
    most = max(limit.at_once or 0, limit.per_minute or 0)
    wait = timedelta(seconds=retry_after_s)
    event_ref = lowering_ref(run, engine.clock.new_id())

    def halved(stored: Document | None, now: datetime) -> Write[None]:
        before = None if stored is None else LoweredLimit.model_validate(stored)
        after = lowered(before, now, key=key, most=most, began=began, retry_after=wait)
        if after is None or lease is None or now >= lease.expires_at:
            return Write(None)
        if before is not None and after.lowered_at == before.lowered_at:
            return Write(None, to_document(after))
        detail = (
            f"limit {key} ({limit.number_words}) is lowered to {after.share:.1%} of that, as its "
            f"provider takes no more for {retry_after_s:g} s; from {stamp(after.grows_from)} on it "
            f"grows by an eighth a minute"
        )
        event = event_of(run, TraceType.LIMIT_LOWERED, now, detail=detail, share=after.share)
        return Write(None, to_document(after), creates={event_ref: to_document(event)})

    with contextlib.suppress(StoreUnavailableError):
        engine.documents.transact(lowered_ref(key), halved)
