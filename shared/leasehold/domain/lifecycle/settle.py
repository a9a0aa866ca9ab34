"""An attempt's ways out. Each is one commit, fenced by the lease; the first one wins.

A settlement that was committed but whose answer was lost may be repeated: it gets the answer of
the first (`lastSettlement`) and changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from leasehold.domain.change import Change, change_to, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.give_up_rules import verdict
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.lifecycle.dead_letter import counted, dead_letter
from leasehold.domain.lifecycle.handoff import dispatch_next, hand_off, under_next_generation
from leasehold.domain.lifecycle.lapse import Lapse, lapse_of, termination
from leasehold.domain.manifest import (
    Block,
    ErrorRecord,
    KeptValue,
    Lease,
    Manifest,
    Settlement,
    StepRecord,
)
from leasehold.domain.status import (
    AttemptEnd,
    Outcome,
    RunEvent,
    RunStatus,
    Termination,
    after,
)
from leasehold.domain.trace import TraceEvent, TraceType, event_of


def complete(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    output: KeptValue,
    output_status: str = "SUCCESS",
) -> Change:
    """Record the output and hand off to the next step, in one commit."""
    if repeated := first_answer(manifest, fence):
        return repeated
    lease = held_lease(manifest, now, fence)
    steps = _with_output(manifest, now, lease, output, output_status)
    change = hand_off(manifest, now, rules, RunEvent.STEP_HANDED_OFF, steps=steps)
    return settled(change, fence)


def block(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    output: KeptValue,
    output_status: str,
    found: Block,
) -> Change:
    """Keep the output and let a person decide what becomes of it."""
    if repeated := first_answer(manifest, fence):
        return repeated
    lease = held_lease(manifest, now, fence)
    steps = _with_output(manifest, now, lease, output, output_status)
    steps[manifest.current_step] = steps[manifest.current_step].with_(status=RunStatus.BLOCKED)
    told = event_of(
        manifest,
        TraceType.GATE_BLOCKED,
        now,
        reason=found.code,
        detail=found.finding,
        check_id=found.check_id,
        finding=found.finding,
        remediation=found.remediation,
    )
    status = after(manifest.status, RunEvent.GATE_FAILED)
    update: dict[str, Any] = {"status": status, "steps": steps, "lease": None, "block": found}
    update["dispatch"] = under_next_generation(manifest)
    return settled(change_to(manifest, now, rules, Outcome.BLOCKED, told, **update), fence)


def fail(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    error: ErrorRecord,
    permanent: bool = False,
) -> Change:
    """Record the error; schedule the next attempt at its backoff, or give the run up."""
    if repeated := first_answer(manifest, fence):
        return repeated
    held_lease(manifest, now, fence)
    error = error.with_(step=manifest.current_step, attempt=manifest.attempt, permanent=permanent)
    told = event_of(
        manifest,
        TraceType.STEP_ERROR,
        now,
        reason=error.type,
        detail=error.message,
        error_code=error.code,
        details=error.details,
        validation_issues=error.validation_issues,
        validation_issue_count=error.validation_issue_count or None,
        origin=error.origin,
    )
    end = (AttemptEnd.FAILED, RunEvent.ATTEMPT_FAILED, Outcome.RETRY_SCHEDULED)
    change = ended_early(manifest, now, rules, end, told, error=error, error_at=now)
    return settled(change, fence)


def release(
    manifest: Manifest, now: datetime, *, rules: Rules, fence: Fence, reason: Termination
) -> Change:
    """Release the lease before its end; the next generation runs now, and no retry is used up.

    A lease that is released because its end is near counts as if it had run out: so it would
    have, had the handler not listened. The worker was heard of just now.
    """
    if repeated := first_answer(manifest, fence):
        return repeated
    lease = held_lease(manifest, now, fence)
    if reason == Termination.LEASE_EXPIRED:
        heard_of = manifest.with_(heartbeat_at=now)
        lapse = lapse_of(heard_of, now, rules, lease)
        hung = lapse.end is AttemptEnd.FAILED
        outcome = Outcome.RETRY_SCHEDULED if hung else Outcome.RELEASED
        return settled(lapsed(heard_of, now, rules, lapse, outcome), fence)
    end = (AttemptEnd.INTERRUPTED, RunEvent.LEASE_RELEASED, Outcome.RELEASED)
    told = termination(manifest, now, lease, reason)
    return settled(ended_early(manifest, now, rules, end, told), fence)


def expire(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    lease_id: str,
    holder_gone: bool = False,
    sweep_job_id: str | None = None,
) -> Change:
    """End a lease whose time is over, or whose holder is known to be gone.

    The next generation runs now, or after its backoff where the attempt counts as failed.
    """
    lease = manifest.lease
    if lease is None or lease.lease_id != lease_id:
        return unchanged(manifest, Outcome.MOVED_ON)
    if now < lease.expires_at and not holder_gone:
        return unchanged(manifest, Outcome.LEASE_HELD)
    lapse = lapse_of(manifest, now, rules, lease, holder_gone=holder_gone)
    return lapsed(manifest, now, rules, lapse, Outcome.EXPIRED, sweep_job_id=sweep_job_id)


def lapsed(
    manifest: Manifest,
    now: datetime,
    rules: Rules,
    lapse: Lapse,
    outcome: Outcome,
    *told: TraceEvent,
    sweep_job_id: str | None = None,
) -> Change:
    """End the attempt as what it counts as."""
    hung = lapse.end is AttemptEnd.FAILED
    event = RunEvent.ATTEMPT_FAILED if hung else RunEvent.LEASE_EXPIRED
    return ended_early(
        manifest,
        now,
        rules,
        (lapse.end, event, outcome),
        lapse.told,
        *told,
        sweep_job_id=sweep_job_id,
        **lapse.update,
    )


def ended_early(
    manifest: Manifest,
    now: datetime,
    rules: Rules,
    end: tuple[AttemptEnd, RunEvent, Outcome],
    *told: TraceEvent,
    sweep_job_id: str | None = None,
    **update: Any,
) -> Change:
    """Count an attempt that ended without an output; dispatch the next, or give the run up.

    After a failure the next one waits for its backoff; after any other end it is due at once.
    """
    cause, event, outcome = end
    status = after(manifest.status, event)
    update |= counted(manifest, cause)
    if found := verdict(manifest.with_(**update, status=status), now, rules):
        return dead_letter(manifest, now, rules, found, *told, sweep_job_id=sweep_job_id, **update)
    record = update["steps"][manifest.current_step].with_(status=status)
    update["steps"] = {**update["steps"], manifest.current_step: record}
    if sweep_job_id is not None and not manifest.paused:
        facts = {"sweep_job_id": sweep_job_id, "detail": "The step is dispatched again."}
        told += (event_of(manifest, TraceType.STEP_RECOVERED, now, **facts),)
    failures = update["attempts"].failed if status is RunStatus.ERROR else 0
    wait = rules.backoff.wait(failures) if failures else timedelta()
    return dispatch_next(
        manifest, now, rules, outcome, *told, wait=wait, **update, status=status, lease=None
    )


def settled(change: Change, fence: Fence) -> Change:
    """Note the answer, so that the same settlement gets it again."""
    note = Settlement(
        lease_id=fence.lease_id, fencing_token=fence.fencing_token, outcome=change.outcome
    )
    return replace(change, manifest=change.manifest.with_(last_settlement=note))


def first_answer(manifest: Manifest, fence: Fence) -> Change | None:
    """Return the first answer to a settlement that was committed before; None if there is none."""
    last = manifest.last_settlement
    if last is None or last.lease_id != fence.lease_id:
        return None
    if last.fencing_token not in (None, fence.fencing_token):
        return None  # somebody else's token: held_lease says what is known
    return unchanged(manifest, last.outcome)


def _with_output(
    manifest: Manifest, now: datetime, lease: Lease, output: KeptValue, output_status: str
) -> dict[str, StepRecord]:
    record = manifest.steps[manifest.current_step].with_(
        status=RunStatus.COMPLETED,
        completed_at=now,
        execution_seconds=max(0.0, (now - lease.acquired_at).total_seconds()),
        output=output.text,
        output_ref=output.ref,
        output_status=output_status,
    )
    return {**manifest.steps, manifest.current_step: record}
