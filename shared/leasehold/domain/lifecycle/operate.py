"""What people may do to a run, and when. All of it leaves actor and reason in the trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from leasehold.domain.calls import outlasting
from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules
from leasehold.domain.draft import Draft
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle.handoff import dispatch_next, hand_off
from leasehold.domain.lifecycle.kept_steps import kept_steps
from leasehold.domain.lifecycle.lapse import lapse
from leasehold.domain.lifecycle.settle import end_attempt
from leasehold.domain.lifecycle.start import NewRun, new_manifest
from leasehold.domain.lifecycle.termination import cancelled, trace_termination
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import AttemptEnd, Outcome, RunEvent, RunStatus, Termination, after
from leasehold.domain.trace import TraceType
from leasehold.errors import NotAllowedError


class Operation(StrEnum):
    """What people may do."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"
    APPROVE = "approve"
    RECREATE = "recreate"


def _is_live(manifest: Manifest) -> bool:
    return not manifest.is_terminal


#: When an operation is allowed: the words for people, and the same for the engine.
ALLOWED: Final[Mapping[Operation, tuple[str, Callable[[Manifest], bool]]]] = {
    Operation.PAUSE: ("live and not paused", lambda m: _is_live(m) and not m.paused),
    Operation.RESUME: ("paused", lambda m: _is_live(m) and m.paused),
    Operation.CANCEL: ("live", _is_live),
    Operation.RETRY: (
        "in ERROR or BLOCKED and not dead-lettered",
        lambda m: _is_live(m) and m.status in (RunStatus.ERROR, RunStatus.BLOCKED),
    ),
    Operation.APPROVE: (
        "BLOCKED with an output that was kept",
        lambda m: (
            _is_live(m)
            and m.status is RunStatus.BLOCKED
            and m.steps[m.current_step].kept_output is not None
        ),
    ),
    Operation.RECREATE: ("completed, cancelled or dead-lettered", lambda m: m.is_terminal),
}


def pause(manifest: Manifest, now: datetime, *, rules: Rules, actor: str, reason: str) -> Change:
    """Let a running attempt end, and dispatch nothing more."""
    check_allowed(manifest, Operation.PAUSE)
    draft = Draft(manifest, now, rules)
    draft.trace(TraceType.RUN_PAUSED, actor=actor, reason=reason)
    draft.set(status=after(manifest.status, RunEvent.PAUSED), paused=True)
    return draft.commit(Outcome.PAUSED)


def resume(manifest: Manifest, now: datetime, *, rules: Rules, actor: str, reason: str) -> Change:
    """Dispatch the next generation now; an attempt that still runs goes on."""
    check_allowed(manifest, Operation.RESUME)
    draft = Draft(manifest, now, rules)
    lease = manifest.lease
    if lease is None or now < lease.expires_at:
        draft.trace(TraceType.RUN_RESUMED, actor=actor, reason=reason)
        return _resume(draft)
    end = lapse(draft, lease)
    draft.trace(TraceType.RUN_RESUMED, actor=actor, reason=reason)
    ended = end_attempt(draft, end, Outcome.RESUMED)
    if ended.manifest.is_terminal:
        return ended
    then = _resume(Draft(ended.manifest, now, rules))
    return then.following(ended)


def _resume(draft: Draft) -> Change:
    status = after(draft.run.status, RunEvent.RESUMED)
    draft.set_step(status=status)
    draft.set(paused=False, status=status)
    if draft.run.lease is not None or status is RunStatus.BLOCKED:
        return draft.commit(Outcome.RESUMED)
    return dispatch_next(draft, Outcome.RESUMED)


def cancel(manifest: Manifest, now: datetime, *, rules: Rules, actor: str, reason: str) -> Change:
    """End the run for good; what a running attempt still answers is discarded."""
    check_allowed(manifest, Operation.CANCEL)
    lease = manifest.lease
    # the worker that holds the lease is answered as if it had settled its attempt so
    fence = None if lease is None else Fence(lease.lease_id, manifest.fencing_token)
    draft = Draft(manifest, now, rules, fence)
    draft.trace(TraceType.RUN_CANCELLED, actor=actor, reason=reason)
    if lease is not None:
        trace_termination(draft, lease, Termination.CANCELLED, cancelled(actor, reason))
    status = after(manifest.status, RunEvent.CANCELLED)
    draft.set_step(status=status)
    draft.set(status=status, cancelled=True, paused=False, lease=None, calls=outlasting(manifest))
    return draft.commit(Outcome.CANCELLED)


def retry(manifest: Manifest, now: datetime, *, rules: Rules, actor: str, reason: str) -> Change:
    """Dispatch the next generation of the step now."""
    check_allowed(manifest, Operation.RETRY)
    draft = Draft(manifest, now, rules)
    draft.trace(TraceType.RUN_RETRIED, actor=actor, reason=reason)
    had_ended = manifest.steps[manifest.current_step].kept_output is not None
    if had_ended:
        draft.count(AttemptEnd.REPEATED)
    draft.set_step(
        status=RunStatus.PENDING,
        completed_at=None,
        execution_seconds=None,
        output=None,
        output_ref=None,
        output_status=None,
        rejected=None,
        verdict=None,
    )
    draft.set(
        status=after(manifest.status, RunEvent.RETRIED),
        block=None,
        checkpoint=None if had_ended else manifest.checkpoint,
        calls=outlasting(manifest) if had_ended else manifest.calls,
    )
    draft.count_anew()
    return dispatch_next(draft, Outcome.RETRIED)


def approve(manifest: Manifest, now: datetime, *, rules: Rules, actor: str, reason: str) -> Change:
    """Hand off the output that was kept."""
    check_allowed(manifest, Operation.APPROVE)
    draft = Draft(manifest, now, rules)
    draft.trace(TraceType.RUN_APPROVED, actor=actor, reason=reason)
    change = hand_off(draft, RunEvent.APPROVED)
    if change.outcome is Outcome.HANDED_OFF:
        return replace(change, outcome=Outcome.APPROVED)
    return change


def recreate(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    from_step: str,
    new: NewRun,
    actor: str,
    reason: str,
    keep_partial: bool = False,
) -> Change:
    """Begin a new run at `from_step`; outputs before it are kept. Both know the other.

    Raises:
        UnknownKeyError: this deploy does not know the step.
        NotAllowedError: the run is still live.
        InvalidRequestError: the plan has no such step, or an output before it is missing.
        PartialOutputError: an output before it is PARTIAL, and `keep_partial` is not said.
    """
    check_allowed(manifest, Operation.RECREATE)
    steps = kept_steps(manifest, new, from_step, keep_partial=keep_partial)
    settings = rules.known_settings(from_step)
    new = replace(new, recreated_from=manifest.run_id)
    created = new_manifest(now, rules=rules, settings=settings, new=new, steps=steps)
    draft = Draft(manifest, now, rules)
    draft.trace(TraceType.RUN_RECREATED, actor=actor, reason=reason, recreated_as=new.run_id)
    draft.set(recreated_as=(*manifest.recreated_as, new.run_id))
    return draft.commit(Outcome.RECREATED, created)


def is_allowed(manifest: Manifest, operation: Operation) -> bool:
    """Return whether the state of the run allows the operation."""
    _, allows = ALLOWED[operation]
    return allows(manifest)


def decisions(manifest: Manifest) -> tuple[Operation, ...]:
    """Return what a person can do about a run that waits for one; nothing, for any other."""
    if manifest.paused:
        wanted: tuple[Operation, ...] = (Operation.RESUME, Operation.CANCEL)
    elif manifest.status is RunStatus.BLOCKED:
        wanted = (Operation.APPROVE, Operation.RETRY, Operation.CANCEL)
    else:
        wanted = ()
    return tuple(operation for operation in wanted if is_allowed(manifest, operation))


def check_allowed(manifest: Manifest, operation: Operation) -> None:
    """Raise NotAllowedError where the state of the run forbids the operation."""
    if not is_allowed(manifest, operation):
        raise NotAllowedError(
            operation=operation.value,
            run_id=manifest.run_id,
            state=manifest.state,
            allowed=ALLOWED[operation][0],
        )
