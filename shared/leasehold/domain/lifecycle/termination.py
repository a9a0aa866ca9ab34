"""What the trace says of an attempt that was cut short: a sentence for each reason, and the facts.

An attempt that fails at a limit leaves its error with the run, as one that raised does. The end of
a run that is given up is here as well.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.children import CHILD_FAILED
from leasehold.domain.give_up_rules import Verdict
from leasehold.domain.lifecycle.handoff import next_item
from leasehold.domain.lifecycle.stop import stop
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Block, ErrorRecord, Lease
from leasehold.domain.retry import is_listed
from leasehold.domain.status import Outcome, RunEvent, RunStatus, Termination, after
from leasehold.domain.stored import replace
from leasehold.domain.trace import MAX_DETAIL_CHARS, TraceType
from leasehold.errors import DispatchDeadlineError, SilenceLimitError

#: What an attempt did when it was ended, at most: as the traceback of one that raised.
MAX_STACKS_BYTES: Final = 8 * 1024

GONE: Final = "The holder's process is gone."
SHUT_DOWN: Final = "SIGTERM: the instance was shut down; the lease was released."
KILLED: Final = "The handler did not end, and was killed."
RELEASED: Final = "The worker could not renew its lease in time, and released it before its end."


def trace_termination(
    draft: Draft, lease: Lease, reason: Termination, detail: str, *, stacks: str = ""
) -> None:
    """Trace that an attempt was cut short, with all that is known of it.

    Args:
        draft: the change so far.
        lease: the lease that it had.
        reason: for machines.
        detail: what happened, in a sentence.
        stacks: what it did then, frame by frame; empty: not known.
    """
    draft.terminated(str(reason))
    draft.trace(
        TraceType.STEP_TERMINATED,
        reason=str(reason),
        detail=detail[:MAX_DETAIL_CHARS],
        holder=lease.holder,
        last_heartbeat_at=draft.position.heartbeat_at,
        lease_expires_at=lease.expires_at,
        stacks=bounded_stacks(stacks),
    )


def note_error(draft: Draft, error: ErrorRecord) -> None:
    """Note the error of the attempt; whether it is permanent, the policy of the step says too."""
    run = draft.before
    permanent = error.permanent or is_listed((error.type, error.code), run.position.dispatch)
    error = replace(
        error, step=run.position.step, attempt=run.position.attempt, permanent=permanent
    )
    draft.run = replace(draft.run, error=error, error_at=draft.now)


def deadline_error(run: Manifest) -> ErrorRecord:
    """Return the error of an attempt that was at work at its dispatch deadline."""
    step, attempt = run.position.step, run.position.attempt
    error = DispatchDeadlineError(
        step=step, attempt=attempt, deadline_s=run.position.dispatch.deadline_s
    )
    return ErrorRecord(type=type(error).__name__, code=error.code, message=error.message)


def limit_error(run: Manifest, reason: Termination) -> ErrorRecord:
    """Return the error of an attempt that a worker ended at its deadline, or for its silence."""
    if reason is not Termination.SILENCE_LIMIT_EXCEEDED:
        return deadline_error(run)
    step, attempt = run.position.step, run.position.attempt
    silence_s = (run.position.dispatch.silence_limit_ms or 0) / 1000
    return ErrorRecord.of(SilenceLimitError(step=step, attempt=attempt, silence_s=silence_s))


def expired(run: Manifest, lease: Lease) -> str:
    """Say that a worker fell silent."""
    ended, heard = _stamp(lease.expires_at), _stamp(run.position.heartbeat_at or lease.acquired_at)
    return f"The lease ran out at {ended}: {lease.holder} was last heard of at {heard}."


def cancelled(actor: str, reason: str) -> str:
    """Say who cancelled the run, and why."""
    by, why = actor or "someone", f": {reason.rstrip('.')}" if reason else ""
    return f"The run was cancelled by {by}{why}; what the attempt still answers is discarded."


def bounded_stacks(stacks: str) -> str:
    """Return the stacks without what no run keeps of them."""
    return stacks.encode()[:MAX_STACKS_BYTES].decode(errors="ignore")


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


# Dead letters: written once, never undone; a run can only be recreated.


def dead_letter(draft: Draft, verdict: Verdict, sweep_job_id: str | None = None) -> Change:
    """Give the run up, for good. A run that is terminal already stays as it is.

    A child is never given up: its parent waits for it. A lane leaves an item that may fail; any
    other child blocks, and a person decides.

    Args:
        draft: the change so far.
        verdict: why.
        sweep_job_id: the sweep that gives it up; None: any.
    """
    if draft.before.is_terminal:
        return unchanged(draft.before, outcome_at_end(draft.before))
    if draft.before.parent is not None:
        return _fail_child(draft, verdict)
    run = draft.run
    draft.trace(
        TraceType.STEP_DEAD_LETTERED,
        reason=verdict.reason.value,
        detail=verdict.detail,
        last_step=run.position.step,
        retry_count=max(0, run.position.attempts.failed - 1),
        sweep_job_id=sweep_job_id,
    )
    draft.run = replace(
        draft.run,
        status=after(run.status, RunEvent.DEAD_LETTERED),
        steps={
            **run.steps,
            run.position.step: replace(run.steps[run.position.step], status=RunStatus.ERROR),
        },
        paused=False,
        block=None,
        dead_lettered=True,
        dead_lettered_at=draft.now,
        dead_letter_reason=verdict.reason,
        dead_letter_detail=verdict.detail,
    )
    draft.position = replace(draft.position, lease=None)
    return draft.commit(Outcome.DEAD_LETTERED)


def _fail_child(draft: Draft, verdict: Verdict) -> Change:
    lane, run = draft.before.lane, draft.run
    draft.position = replace(draft.position, lease=None)
    items = "" if lane is None else f"Item {lane.unit[0]}: "
    if lane is not None and lane.failed + lane.unit[1] - lane.unit[0] <= lane.tolerated:
        error = run.error or ErrorRecord(
            type="DeadLetter", code=verdict.reason.value, message=verdict.detail
        )
        draft.trace(TraceType.ITEM_FAILED, reason=verdict.reason.value, detail=verdict.detail)
        return next_item(draft, RunEvent.ITEM_LEFT, lane, failed=error)
    block = Block(
        code=CHILD_FAILED,
        finding=f"{items}{verdict.reason.value}: {verdict.detail}",
        remediation=_CHILD_REMEDY,
    )
    draft.trace(TraceType.CHILD_FAILED, reason=verdict.reason.value, detail=verdict.detail)
    dispatch = replace(draft.position.dispatch.under_next_generation, redispatched=0)
    return stop(draft, block, RunEvent.CHILD_FAILED, dispatch=dispatch)


_CHILD_REMEDY: Final = (
    "`leasehold retry` of the run that waits for it tries it again with what it has kept; "
    "or cancel that."
)


def outcome_at_end(manifest: Manifest) -> Outcome:
    """Return the answer to a hint of a terminal run."""
    if manifest.cancelled:
        return Outcome.CANCELLED
    return Outcome.DEAD_LETTERED if manifest.dead_lettered else Outcome.ALREADY_COMPLETED
