"""What an attempt counts as whose worker is silent: judged by its last heartbeat."""

from __future__ import annotations

from leasehold.domain.draft import Draft
from leasehold.domain.lease import is_past_deadline, is_silent
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord, Lease
from leasehold.domain.retry import is_listed
from leasehold.domain.status import AttemptEnd, Termination
from leasehold.domain.trace import TraceType
from leasehold.errors import DispatchDeadlineError


def lapse(draft: Draft, lease: Lease, *, holder_gone: bool = False) -> AttemptEnd:
    """Return what the attempt under `lease` counts as, now that the lease is ended.

    It is traced, and the run notes the error of a failure, or one silence more.

    Args:
        draft: the change so far.
        lease: the lease that is ended.
        holder_gone: whether the holder's process is known to be gone; its silence is explained.
    """
    run = draft.run
    gone = "The holder's process is gone." if holder_gone else None
    if is_past_deadline(run, lease):
        error = _deadline_error(run)
        trace_termination(
            draft, lease, Termination.DISPATCH_DEADLINE_EXCEEDED, gone or error.message
        )
        draft.set(error=error, error_at=draft.now)
        return AttemptEnd.FAILED
    trace_termination(draft, lease, Termination.LEASE_EXPIRED, gone)
    silent = not holder_gone and is_silent(run, draft.now, draft.rules, lease)
    draft.set(silences=run.silences + silent)
    return AttemptEnd.EXPIRED


def trace_termination(
    draft: Draft, lease: Lease, reason: Termination, detail: str | None = None
) -> None:
    """Trace that an attempt was cut short, with all that is known of it."""
    draft.trace(
        TraceType.STEP_TERMINATED,
        reason=str(reason),
        detail=detail,
        holder=lease.holder,
        last_heartbeat_at=draft.run.heartbeat_at,
        lease_expires_at=lease.expires_at,
    )


def _deadline_error(run: Manifest) -> ErrorRecord:
    step, attempt = run.current_step, run.attempt
    error = DispatchDeadlineError(step=step, attempt=attempt, deadline_s=run.dispatch.deadline_s)
    return ErrorRecord(
        type=type(error).__name__,
        code=error.code,
        message=error.message,
        permanent=is_listed((type(error).__name__, error.code), run.dispatch),
        step=step,
        attempt=attempt,
    )
