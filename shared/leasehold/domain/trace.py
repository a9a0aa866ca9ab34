"""Trace events: what happened to a run, one document each (`runs/{runId}/trace/{number}`)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime
from pydantic.alias_generators import to_camel

from leasehold.domain.document import Ref
from leasehold.domain.manifest import Manifest, Stored


class TraceType(StrEnum):
    """All trace events. Planned ones are told from the manifest, the others are stored."""

    RUN_STARTED = "run_started"
    STEP_STARTED = "step_started"
    STEP_COMPLETED = "step_completed"
    STEP_HANDED_OFF = "step_handed_off"
    RUN_COMPLETED = "run_completed"

    STEP_ERROR = "step_error"
    STEP_TERMINATED = "step_terminated"
    LEASE_LOST = "lease_lost"
    CHECKPOINT_RESUMED = "checkpoint_resumed"
    STEP_REDISPATCHED = "step_redispatched"
    STEP_RECOVERED = "step_recovered"
    STEP_UNKNOWN = "step_unknown"
    GATE_BLOCKED = "gate_blocked"
    STEP_DEAD_LETTERED = "step_dead_lettered"
    RUN_PAUSED = "run_paused"
    RUN_RESUMED = "run_resumed"
    RUN_CANCELLED = "run_cancelled"
    RUN_RETRIED = "run_retried"
    RUN_APPROVED = "run_approved"
    RUN_RECREATED = "run_recreated"


class TraceEvent(Stored):
    """One event; facts beyond these fields stand beside them."""

    type: TraceType
    at: AwareDatetime
    step: str | None = None
    trial: int | None = None
    attempt: int | None = None
    reason: str | None = None
    detail: str | None = None


def event_of(manifest: Manifest, type_: TraceType, at: Any, **facts: Any) -> TraceEvent:
    """Return an event of the attempt the manifest is in, with facts that are not empty."""
    further = {to_camel(name): fact for name, fact in facts.items() if fact not in (None, (), "")}
    return TraceEvent(
        type=type_,
        at=at,
        step=manifest.current_step,
        trial=manifest.trial,
        attempt=manifest.attempt,
        **further,
    )


def loss_ref(run_id: str, lease_id: str) -> Ref:
    """Return the name of the event that a worker leaves which lost its lease.

    It has no number: to take one would be a write to the run, which is not its any more.
    """
    return Ref(f"runs/{run_id}/trace", f"lost-{lease_id}")


def trace_ref(run_id: str, number: int) -> Ref:
    """Return the name of a run's stored event; names sort as the events came."""
    return Ref(f"runs/{run_id}/trace", f"{number:06d}")
