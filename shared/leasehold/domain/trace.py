"""Trace events: what happened to a run, one document each (`runs/{runId}/trace/{number}-{mark}`).

The mark tells the run from an earlier one of the same id: a deletion of the run's document, by a
TTL policy or in the console, leaves its trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, Field
from pydantic.alias_generators import to_camel

from leasehold.domain.manifest import Manifest, to_document
from leasehold.domain.stored import Document, Ref, Stored, Write

#: Characters of the detail of an event, and so of why an attempt or a run ended.
MAX_DETAIL_CHARS: Final = 500


class TraceType(StrEnum):
    """All trace events. Planned ones are derived from the manifest, the others are stored."""

    RUN_STARTED = "run_started"
    STEP_STARTED = "step_started"
    STEP_COMPLETED = "step_completed"
    STEP_HANDED_OFF = "step_handed_off"
    STEP_SKIPPED = "step_skipped"
    RUN_COMPLETED = "run_completed"

    STEP_ERROR = "step_error"
    STEP_TERMINATED = "step_terminated"
    LEASE_LOST = "lease_lost"
    STEP_CONTINUED = "step_continued"
    STACK_TAKEN = "stack_taken"
    CHECKPOINT_RESUMED = "checkpoint_resumed"
    CALL_DIVERGED = "call_diverged"
    CHECKPOINT_REJECTED = "checkpoint_rejected"
    STEP_REDISPATCHED = "step_redispatched"
    STEP_RECOVERED = "step_recovered"
    STEP_UNKNOWN = "step_unknown"
    STEP_BLOCKED = "step_blocked"
    GATE_BLOCKED = "gate_blocked"
    BUDGET_EXCEEDED = "budget_exceeded"
    CALL_UNCONFIRMED = "call_unconfirmed"
    AUTHOR_SLOT_OPENED = "author_slot_opened"
    AUTHOR_SLOT_REFUSED = "author_slot_refused"
    TRIAL_CHOSEN = "trial_chosen"
    STEP_DEAD_LETTERED = "step_dead_lettered"
    SIGNAL_RECEIVED = "signal_received"
    SIGNAL_REFUSED = "signal_refused"
    WAIT_TIMED_OUT = "wait_timed_out"
    RUN_PAUSED = "run_paused"
    RUN_RESUMED = "run_resumed"
    RUN_CANCELLED = "run_cancelled"
    RUN_RETRIED = "run_retried"
    RUN_APPROVED = "run_approved"
    RUN_RECREATED = "run_recreated"
    ANNOUNCEMENT_SENT = "announcement_sent"
    ANNOUNCEMENT_GIVEN_UP = "announcement_given_up"
    ANNOUNCEMENT_REQUESTED = "announcement_requested"
    ARCHIVE_FAILED = "archive_failed"
    LIMIT_LOWERED = "limit_lowered"
    CHILDREN_BEGUN = "children_begun"
    CHILDREN_BLOCKED = "children_blocked"
    CHILD_FAILED = "child_failed"
    ITEM_FAILED = "item_failed"


#: Events that are not part of a change to the run: they have no number, and their time orders them.
UNNUMBERED: Final = frozenset(
    {
        TraceType.LEASE_LOST,
        TraceType.CALL_DIVERGED,
        TraceType.LIMIT_LOWERED,
        TraceType.ANNOUNCEMENT_SENT,
        TraceType.ANNOUNCEMENT_GIVEN_UP,
        TraceType.ANNOUNCEMENT_REQUESTED,
    }
)

#: Events of attempts that left no output; they say how long each phase took.
ENDS_OF_ATTEMPTS: Final = frozenset(
    {TraceType.STEP_ERROR, TraceType.STEP_TERMINATED, TraceType.STEP_CONTINUED}
)

#: The name of an event whose run marks it; a version before had no marks.
_MARKED: Final = re.compile(
    r"(?:\d+|(?:lost|diverged|lowered|told)-.+)-(?P<mark>[0-9a-f]{8})", re.ASCII
)


class TraceEvent(Stored):
    """One event; facts beyond these fields stand beside them.

    A type that a later version wrote is kept as it is.
    """

    type: Annotated[TraceType | str, Field(union_mode="left_to_right")]
    at: AwareDatetime
    step: str | None = None
    trial: int | None = None
    attempt: int | None = None
    reason: str | None = None
    detail: str | None = None
    traceback: str | None = None  # of a failed attempt
    stacks: str | None = None  # what an attempt did when it was ended at a limit, or on request


def event_of(manifest: Manifest, type_: TraceType, at: datetime, **facts: Any) -> TraceEvent:
    """Return an event of the attempt the manifest is in, with facts that are not empty."""
    further = {to_camel(name): fact for name, fact in facts.items() if fact not in (None, (), "")}
    return TraceEvent(
        type=type_,
        at=at,
        step=manifest.position.step,
        trial=manifest.position.trial,
        attempt=manifest.position.attempt,
        **further,
    )


def left_once(
    run: Manifest, type_: TraceType, **facts: Any
) -> Callable[[Document | None, datetime], Write[None]]:
    """Return the decision that leaves an event without a number, unless it is there."""

    def left(stored: Document | None, now: datetime) -> Write[None]:
        if stored is not None:
            return Write(None)
        return Write(None, to_document(event_of(run, type_, now, **facts)))

    return left


def loss_ref(manifest: Manifest, lease_id: str) -> Ref:
    """Return the name of the event that a worker leaves which lost its lease.

    It has no number: to take one would be a write to the run, which is not its any more.
    """
    return _ref(manifest, f"lost-{lease_id}")


def diverged_ref(manifest: Manifest) -> Ref:
    """Return the name of the event that an attempt leaves whose calls have other requests.

    It has no number, as the run is not written for it.
    """
    at = manifest.position
    return _ref(manifest, f"diverged-{at.step}-{at.trial}-{at.attempt}")


def lowering_ref(manifest: Manifest, name: str) -> Ref:
    """Return the name of the event of an attempt that lowered a limit; likewise.

    Args:
        manifest: the run.
        name: what no other event of its attempts has.
    """
    return _ref(manifest, f"lowered-{name}")


def telling_ref(run_id: str, mark: str, name: str) -> Ref:
    """Return the name of an event of a delivery: it has no number either, and no run at hand.

    Args:
        run_id: the run.
        mark: what `run_mark` gave for it.
        name: what no other event of its deliveries has.
    """
    return Ref(f"runs/{run_id}/trace", f"told-{name}-{mark}")


def trace_ref(manifest: Manifest, number: int) -> Ref:
    """Return the name of a run's stored event; names sort in the order of the events."""
    return _ref(manifest, f"{number:06d}")


def is_of_run(manifest: Manifest, name: str, event: TraceEvent) -> bool:
    """Return whether a stored event is the run's own, and not left by one that had its id before.

    Args:
        manifest: the run.
        name: the name of the event's document; without a mark only the time decides.
        event: the event.
    """
    mark = mark_in(name)
    return manifest.created_at <= event.at if mark is None else mark == run_mark(manifest)


def mark_in(name: str) -> str | None:
    """Return the mark of the run that left the event of this name; None: it has no mark."""
    marked = _MARKED.fullmatch(name)
    return marked and marked["mark"]


def _ref(manifest: Manifest, name: str) -> Ref:
    return Ref(f"runs/{manifest.run_id}/trace", f"{name}-{run_mark(manifest)}")


def run_mark(manifest: Manifest) -> str:
    """Return the mark of this life of the run's id: no other run of the id has it."""
    return manifest.life
