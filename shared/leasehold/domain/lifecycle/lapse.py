"""What an attempt counts as whose worker says nothing more: judged by what was last heard of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import is_past_deadline, is_silent
from leasehold.domain.manifest import ErrorRecord, Lease, Manifest
from leasehold.domain.status import AttemptEnd, Termination
from leasehold.domain.trace import TraceEvent, TraceType, event_of
from leasehold.errors import DispatchDeadlineError


@dataclass(frozen=True, slots=True)
class Lapse:
    """How an attempt ended that can no longer speak for itself.

    Args:
        end: what it counts as.
        told: the event that says so.
        update: what else it leaves in the manifest: the error of a failure, or one silence more.
    """

    end: AttemptEnd
    told: TraceEvent
    update: Mapping[str, Any]


def lapse_of(
    manifest: Manifest, now: datetime, rules: Rules, lease: Lease, *, holder_gone: bool = False
) -> Lapse:
    """Return what the attempt under `lease` counts as, now that the lease is ended.

    Args:
        manifest: the run, with what was last heard of the worker.
        now: the store's time.
        rules: the rules in force.
        lease: the lease that is ended.
        holder_gone: whether the holder's process is known to be gone; its silence is explained.
    """
    gone = "The holder's process is gone." if holder_gone else None
    if is_past_deadline(manifest, lease):
        error = _deadline_error(manifest)
        told = termination(
            manifest, now, lease, Termination.DISPATCH_DEADLINE_EXCEEDED, gone or error.message
        )
        return Lapse(AttemptEnd.FAILED, told, {"error": error, "error_at": now})
    told = termination(manifest, now, lease, Termination.LEASE_EXPIRED, gone)
    silent = not holder_gone and is_silent(manifest, now, rules, lease)
    return Lapse(AttemptEnd.EXPIRED, told, {"silences": manifest.silences + silent})


def termination(
    manifest: Manifest, now: datetime, lease: Lease, reason: Termination, detail: str | None = None
) -> TraceEvent:
    """Return the event that says an attempt was cut short, with all that is known of it."""
    return event_of(
        manifest,
        TraceType.STEP_TERMINATED,
        now,
        reason=str(reason),
        detail=detail,
        holder=lease.holder,
        last_heartbeat_at=manifest.heartbeat_at,
        lease_expires_at=lease.expires_at,
    )


def _deadline_error(manifest: Manifest) -> ErrorRecord:
    step, attempt = manifest.current_step, manifest.attempt
    error = DispatchDeadlineError(
        step=step, attempt=attempt, deadline_s=manifest.dispatch.deadline_s
    )
    return ErrorRecord(
        type=type(error).__name__,
        code=error.code,
        message=error.message,
        step=step,
        attempt=attempt,
    )
