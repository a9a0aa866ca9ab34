"""An attempt's ways out. Each is one commit, fenced by the lease; the first one wins.

A settlement that was committed but whose answer was lost may be repeated: it gets the answer of
the first (`lastSettlement`) and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.change import Change, Draft, is_unattended, unchanged
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.give_up_rules import verdict_on
from leasehold.domain.lease import Fence, held_lease, is_past_deadline, is_silent, own_lease
from leasehold.domain.lifecycle.handoff import dispatch_next, hand_off
from leasehold.domain.lifecycle.stop import stop
from leasehold.domain.lifecycle.termination import (
    GONE,
    KILLED,
    RELEASED,
    SHUT_DOWN,
    bounded_stacks,
    dead_letter,
    deadline_error,
    expired,
    note_error,
    trace_termination,
)
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import (
    NO_RATE_LIMITS,
    Block,
    ErrorRecord,
    Lease,
    RateLimits,
    TrialVerdict,
)
from leasehold.domain.notes import NO_NOTES, MadeOutput, Notes
from leasehold.domain.retry import wait_after
from leasehold.domain.status import AttemptEnd, Outcome, RunEvent, RunStatus, Termination, after
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType
from leasehold.errors import NoProgressError

#: What happens to a run whose attempt ends in this way.
_EVENTS: Final[Mapping[AttemptEnd, RunEvent]] = {
    AttemptEnd.FAILED: RunEvent.ATTEMPT_FAILED,
    AttemptEnd.INTERRUPTED: RunEvent.LEASE_RELEASED,
    AttemptEnd.CONTINUED: RunEvent.STEP_CONTINUED,
    AttemptEnd.EXPIRED: RunEvent.LEASE_EXPIRED,
    AttemptEnd.DEFERRED: RunEvent.ATTEMPT_FAILED,  # by a provider that takes no more for now
}


def complete(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    output: KeptValue,
    output_status: str = "SUCCESS",
    verdict: TrialVerdict | None = None,
    summary: str | None = None,
    skip_to: str | None = None,
    notes: Notes = NO_NOTES,
) -> Change:
    """Record the output and hand off to the next step, in one commit.

    A reviewer's verdict decides whether that is the author of another trial, and `skip_to` whether
    it is a later step.
    """
    if first := first_answer(manifest, fence):
        return first
    held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    draft.keep_output(MadeOutput(output, output_status, verdict, summary, skip_to))
    return hand_off(draft, RunEvent.STEP_HANDED_OFF)


def block(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    output: KeptValue,
    output_status: str,
    found: Block,
    verdict: TrialVerdict | None = None,
    summary: str | None = None,
    skip_to: str | None = None,
    notes: Notes = NO_NOTES,
) -> Change:
    """Keep the output and let a person decide what becomes of it; a verdict counts only then."""
    if first := first_answer(manifest, fence):
        return first
    held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    draft.trace(
        TraceType.GATE_BLOCKED,
        **found.facts,
        check_id=found.check_id,
        finding=found.finding,
    )
    draft.keep_output(MadeOutput(output, output_status, verdict, summary, skip_to))
    return stop(draft, found, RunEvent.GATE_FAILED)


def fail(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    error: ErrorRecord,
    permanent: bool = False,
    notes: Notes = NO_NOTES,
) -> Change:
    """Record the error; schedule the next attempt at its backoff, or give the run up."""
    if first := first_answer(manifest, fence):
        return first
    held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    return fail_attempt(draft, replace(error, permanent=permanent))


def fail_attempt(draft: Draft, error: ErrorRecord) -> Change:
    """Trace the error whole, and end the attempt as failed."""
    draft.trace(
        TraceType.STEP_ERROR,
        reason=error.type,
        detail=error.message,
        error_code=error.code,
        details=error.details,
        validation_issues=error.validation_issues,
        validation_issue_count=error.validation_issue_count or None,
        origin=error.origin,
        traceback=error.traceback,
        retry_after_s=error.retry_after_s,
    )
    note_error(draft, error)
    if (wait := _wait_for_provider(draft)) is None:
        return end_attempt(draft, AttemptEnd.FAILED, Outcome.RETRY_SCHEDULED)
    before = draft.position.rate_limits or NO_RATE_LIMITS
    limits = RateLimits(count=before.count + 1, waited_s=before.waited_s + wait.total_seconds())
    draft.position = replace(draft.position, rate_limits=limits)
    return end_attempt(draft, AttemptEnd.DEFERRED, Outcome.RETRY_SCHEDULED, wait=wait)


def _wait_for_provider(draft: Draft) -> timedelta | None:
    """Return how long the step waits for a provider that says when to come back, without a retry.

    None: the error is another one, or the provider would put the step off for longer than its
    dispatch deadline without progress: then the attempt has failed as any other.
    """
    error, at = draft.run.error, draft.position
    if error is None or error.permanent or not error.rate_limited or error.retry_after_s is None:
        return None
    before = at.rate_limits or NO_RATE_LIMITS
    wait = wait_after(error, before.count + 1, at.dispatch, draft.rules.backoff)
    fits = before.waited_s + wait.total_seconds() <= at.dispatch.deadline_s
    return wait if fits else None


def exceed_limit(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    reason: Termination,
    error: ErrorRecord,
    stacks: str = "",
    notes: Notes = NO_NOTES,
) -> Change:
    """End an attempt that was still at work at one of its limits: it failed.

    The trace has one event, `step_terminated`, with the limit as its reason and what the attempt
    did then. The run keeps the error, and shows the same with it.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        reason: the limit.
        error: what the run notes.
        stacks: what the attempt did, frame by frame; empty: not known.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    if first := first_answer(manifest, fence):
        return first
    lease = held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    trace_termination(draft, lease, reason, error.message, stacks=stacks)
    note_error(draft, replace(error, traceback=error.traceback or bounded_stacks(stacks) or None))
    return end_attempt(draft, AttemptEnd.FAILED, Outcome.RETRY_SCHEDULED)


def release(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    reason: Termination,
    detail: str = "",
    killed: bool = False,
    notes: Notes = NO_NOTES,
) -> Change:
    """Release the lease before its end; the next generation runs now, and no retry is used up.

    A lease that is released because its end is near counts as if it had run out: so it would
    have, had the handler not listened. The worker was heard of just now.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        reason: why.
        detail: the same in a sentence; empty: what goes without saying of the reason.
        killed: whether the handler had to be killed for it.
        notes: what is kept with it.
    """
    if first := first_answer(manifest, fence):
        return first
    lease = held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    and_killed = f" {KILLED}" if killed else ""
    if reason == Termination.LEASE_EXPIRED:
        draft.position = replace(draft.position, heartbeat_at=now)
        end = lapse(draft, lease, released=(detail or RELEASED) + and_killed)
        hung = end is AttemptEnd.FAILED
        return end_attempt(draft, end, Outcome.RETRY_SCHEDULED if hung else Outcome.RELEASED)
    trace_termination(draft, lease, reason, (detail or SHUT_DOWN) + and_killed)
    return end_attempt(draft, AttemptEnd.INTERRUPTED, Outcome.RELEASED)


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
    lease = manifest.position.lease
    if lease is None or lease.lease_id != lease_id:
        return unchanged(manifest, Outcome.MOVED_ON)
    if now < lease.expires_at and not holder_gone:
        return unchanged(manifest, Outcome.LEASE_HELD)
    draft = Draft(manifest, now, rules)
    end = lapse(draft, lease, holder_gone=holder_gone)
    return end_attempt(draft, end, Outcome.EXPIRED, sweep_job_id)


def end_attempt(
    draft: Draft,
    end: AttemptEnd,
    outcome: Outcome,
    sweep_job_id: str | None = None,
    *,
    wait: timedelta | None = None,
) -> Change:
    """Count an attempt that ended without an output; dispatch the next, or give the run up.

    After a failure the next one waits for its backoff; after any other end it is due at once.

    Args:
        draft: the change so far, with the facts of the end.
        end: what the attempt counts as.
        outcome: the answer for the caller.
        sweep_job_id: the sweep that ends it; None: any.
        wait: how long the next one waits, whatever this one counts as; None: see above.
    """
    status = after(draft.run.status, _EVENTS[end])
    draft.count(end)
    draft.run = replace(draft.run, status=status)
    if verdict := verdict_on(draft.run, draft.now, draft.rules):
        return dead_letter(draft, verdict, sweep_job_id)
    draft.step = replace(draft.step, status=status)
    draft.position = replace(draft.position, lease=None)
    if sweep_job_id is not None and not draft.run.paused:
        detail = "The step is dispatched again."
        draft.trace(TraceType.STEP_RECOVERED, sweep_job_id=sweep_job_id, detail=detail)
    if wait is not None:
        return dispatch_next(draft, outcome, wait=wait)
    failures = draft.position.failures if status is RunStatus.ERROR else 0
    if not failures:
        return dispatch_next(draft, outcome)
    run = draft.run
    wait = wait_after(run.error, failures, run.position.dispatch, draft.rules.backoff)
    return dispatch_next(draft, outcome, wait=wait)


def first_answer(manifest: Manifest, fence: Fence) -> Change | None:
    """Return the first answer to a settlement that was committed before; None if there is none."""
    last = manifest.position.last_settlement
    if last is None or last.lease_id != fence.lease_id:
        return None
    if last.fencing_token != fence.fencing_token:
        return None  # another worker's token: held_lease says what is known
    return unchanged(manifest, last.outcome)


# An attempt whose worker is silent: its last heartbeat decides how it is counted.


def lapse(
    draft: Draft, lease: Lease, *, holder_gone: bool = False, released: str = ""
) -> AttemptEnd:
    """Return what the attempt under `lease` counts as, now that the lease is ended.

    It is traced, and the run notes the error of a failure, or one silence more.

    Args:
        draft: the change so far.
        lease: the lease that is ended.
        holder_gone: whether the holder's process is known to be gone; its silence is explained.
        released: the sentence of a worker that ended it by itself; empty: it fell silent.
    """
    run = draft.run
    draft.owe_folder()  # it may have left a file there that no run knows of
    draft.owe_calls()  # likewise
    if is_past_deadline(run, lease):
        error = deadline_error(run)
        sentence = f"{GONE} {error.message}" if holder_gone else error.message
        trace_termination(draft, lease, Termination.DISPATCH_DEADLINE_EXCEEDED, sentence)
        note_error(draft, error)
        return AttemptEnd.FAILED
    sentence = GONE if holder_gone else released or expired(run, lease)
    trace_termination(draft, lease, Termination.LEASE_EXPIRED, sentence)
    is_explained = holder_gone or is_unattended(lease.expires_at, draft.now)
    silent = not is_explained and is_silent(run, draft.now, draft.rules, lease)
    draft.position = replace(draft.position, silences=run.position.silences + silent)
    return AttemptEnd.EXPIRED


# An attempt that ends for the next one to go on: a step may take longer than any attempt may.


#: With the third continuation in a row without a new iteration the attempt has failed.
MAX_IDLE_CONTINUATIONS: Final = 3

_ASKED: Final = "The handler asked for the next attempt to go on."
_SHORT: Final = (
    "The time of the attempt was short at a checkpoint; the next one goes on from there."
)


def continue_later(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    at_checkpoint: bool = False,
    notes: Notes = NO_NOTES,
) -> Change:
    """End the attempt; the next generation runs now, and no retry is used up.

    How often is bounded by progress alone: an attempt fails that is the third in a row to be
    continued since the step made progress, and so is each further one until it makes some.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        at_checkpoint: whether its time was short; else the handler asked for it.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    if first := first_answer(manifest, fence):
        return first
    lease = held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    count = draft.position.continuations + 1  # calls recorded by now are progress
    draft.position = replace(draft.position, continuations=count)
    if count >= MAX_IDLE_CONTINUATIONS:
        return fail_attempt(draft, _no_progress(manifest, count))
    kept = manifest.position.checkpoint
    draft.trace(
        TraceType.STEP_CONTINUED,
        detail=_SHORT if at_checkpoint else _ASKED,
        holder=lease.holder,
        phase=None if kept is None else kept.phase,
        iteration_count=None if kept is None else kept.iteration_count,
    )
    return end_attempt(draft, AttemptEnd.CONTINUED, Outcome.CONTINUED)


def exceed_budget(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    detail: str,
    notes: Notes = NO_NOTES,
) -> Change:
    """End an attempt between two calls, as its budget is used up: the run blocks.

    It uses up no retry, and all that was recorded is kept. Where a person has raised the budget
    meanwhile, the next attempt goes on at once.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        detail: which budget it is, in a sentence.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    if first := first_answer(manifest, fence):
        return first
    lease = held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    draft.trace(TraceType.STEP_CONTINUED, detail=detail, holder=lease.holder)
    return end_attempt(draft, AttemptEnd.CONTINUED, Outcome.CONTINUED)


def _no_progress(run: Manifest, count: int) -> ErrorRecord:
    return ErrorRecord.of(
        NoProgressError(
            step=run.position.step,
            attempt=run.position.attempt,
            count=count,
            timeout_s=run.position.dispatch.timeout_ms / 1000,
        )
    )


# An outage puts an attempt off: it is not a failure, and counts for none.
#
# The holder of the lease defers the attempt; a remote worker that could not be given the step has
# none, and then only the time that the step may wait to be claimed begins anew.


def defer(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    reason: Termination,
    detail: str,
    notes: Notes = NO_NOTES,
) -> Change:
    """Release the lease of an attempt that met an outage; the next one waits for a backoff.

    It uses up no retry and no interruption, and no verdict counts how often that happens. The
    wait grows with each deferral in a row. A store that was away may have outlasted the lease: as
    long as no other worker has taken the run over, its holder says why it ended.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        reason: what could not be had.
        detail: the problem, for people.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not that of the run any more.
    """
    if first := first_answer(manifest, fence):
        return first
    lease = own_lease(manifest, fence)
    in_a_row = manifest.position.dispatch.deferred + 1
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    draft.owe_folder()  # a file may be there whose store did not say so
    trace_termination(draft, lease, reason, detail)
    draft.count(AttemptEnd.DEFERRED)
    draft.step = replace(draft.step, status=RunStatus.PENDING)
    draft.run = replace(draft.run, status=after(manifest.status, RunEvent.LEASE_RELEASED))
    draft.position = replace(draft.position, lease=None)
    wait = rules.backoff.wait(in_a_row)
    return dispatch_next(draft, Outcome.RELEASED, wait=wait, deferred=in_a_row)


def extend_wait(manifest: Manifest, now: datetime, *, rules: Rules, generation: int) -> Change:
    """Let a step wait on to be claimed: a worker wanted it, and an outage kept it back.

    So the time that it may wait, `schedule_to_start`, is not used up by an outage. It is written
    at most once in each grace, however often workers claim.
    """
    dispatch = manifest.position.dispatch
    if manifest.claimable is None or dispatch.generation != generation:
        return unchanged(manifest, Outcome.MOVED_ON)
    if dispatch.seen_at is not None and now < dispatch.seen_at + rules.grace:
        return unchanged(manifest, Outcome.AWAITS_CLAIM)
    draft = Draft(manifest, now, rules)
    draft.position = replace(draft.position, dispatch=replace(dispatch, seen_at=now))
    return draft.commit(Outcome.AWAITS_CLAIM)
