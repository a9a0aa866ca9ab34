"""Deletes the documents of keys of limits that are idle: a key may be a tenant who is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from leasehold.domain.lowered_limit import LoweredLimit
from leasehold.domain.manifest import read_as
from leasehold.domain.rate import Rate
from leasehold.domain.slots import Slot
from leasehold.errors import LeaseholdError, UnreadableRunError, VersionConflictError
from leasehold.ports.documents import Query, Snapshot
from leasehold.services.engine import Engine
from leasehold.services.slots import holder_of

#: What was not used for this time is deleted; a key that is in use keeps its documents.
IDLE: Final = timedelta(days=1)
#: A process begins this much after its own beginning, and then once a day: it reads all of them.
FIRST_PASS_S: Final = 3600.0
PASS_EVERY_S: Final = 86_400.0
#: So many are looked at in one sweep.
SLOTS_PER_SWEEP: Final = 100


def forget_idle_limits(engine: Engine, over_at: float) -> None:
    """Delete some of the documents of limits that are idle; the next sweep goes on behind them.

    None of them is needed: a slot without a document is free, a rate without one has all turns.

    Args:
        engine: the parts.
        over_at: by the monotonic time, when no further document is looked at.
    """
    clock, now = engine.lines, engine.clock.monotonic()
    if clock.forget_at is None:
        clock.forget_at = now + FIRST_PASS_S
    if now < clock.forget_at or not any(entry.limits for entry in engine.catalog.steps):
        return
    try:
        found = engine.documents.query(
            Query("slots", after=clock.forget_from, limit=SLOTS_PER_SWEEP)
        )
        for one in found:
            if engine.clock.monotonic() >= over_at:
                return
            _forget(engine, one)
            clock.forget_from = (None, one.ref.id)
    except LeaseholdError as error:
        engine.listeners.log(f"idle limits are looked at later: {error}")
        return
    if len(found) < SLOTS_PER_SWEEP:
        clock.forget_at, clock.forget_from = now + PASS_EVERY_S, None


def _forget(engine: Engine, found: Snapshot) -> None:
    try:
        used_at = read_as(_model_of(found.ref.id), found.ref.id, found.document).used_at
        if used_at is not None and found.read_at - used_at < IDLE:
            return
        if _model_of(found.ref.id) is Slot and holder_of(engine, found) is not None:
            return
        engine.documents.delete(found.ref, if_version=found)
    except (UnreadableRunError, VersionConflictError):  # a person edited it, or it is in use again
        return


def _model_of(id_: str) -> type[Slot | Rate | LoweredLimit]:
    kind = id_.lstrip("0123456789abcdef")  # the key is hashed
    return Slot if kind.startswith("-") else Rate if kind.startswith("r") else LoweredLimit
