"""An attempt's way in: a hint arrives, and either gets the lease or the reason why not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.dispatch import Rules, dispatch_in_request, has_moved
from leasehold.domain.effect import dispatch_task, wake_task
from leasehold.domain.give_up_rules import verdict_on
from leasehold.domain.lease import deadline_of, lease_for
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.hold import hold
from leasehold.domain.lifecycle.settle import end_attempt, expire, lapse
from leasehold.domain.lifecycle.termination import dead_letter, outcome_at_end
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Dispatch, Lease
from leasehold.domain.status import (
    BLOCKED,
    DISPATCHES,
    IN_PROGRESS,
    AttemptEnd,
    Outcome,
    RunEvent,
    after,
)
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType
from leasehold.errors import LeaseHeldError, NothingToClaimError

#: Clocks of a queue and a store differ a little; a hint this early is on time.
EARLY: Final = timedelta(seconds=2)

_IS_REMOTE: Final = "The step is remote by now: a worker has to claim it."
_CAME_WITHOUT_SETTINGS: Final = "It came from a worker that did not know the step."


def arrive(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    generation: int,
    lease_id: str,
    holder: str,
) -> Change:
    """Give the lease to the bearer of a hint, if the hint is current and the lease is free.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        generation: the dispatch that the hint belongs to.
        lease_id: the name of the lease, new for each call.
        holder: the worker that wants it.
    """
    draft, dispatch = Draft(manifest, now, rules), manifest.position.dispatch
    if generation == dispatch.task_of:  # the queue gives it again: its request has come so far
        generation = dispatch.generation
    if answer := acquired_before(draft, lease_id) or _refusal(manifest, now, generation):
        return answer
    lease = manifest.position.lease
    settings = rules.settings_for(manifest.step_type)
    has_left = settings is None or has_moved(manifest, settings)
    pause = rules.pause_of(manifest.step_type) if rules.pauses else None
    if lease is not None:
        is_held = manifest.paused or pause is not None
        if is_held or manifest.position.dispatch.remote or has_left:
            return _only_end(draft, lease)
        return take_over(draft, lease, lease_id=lease_id, holder=holder)
    if has_left:
        return _not_here(draft)
    verdict = None if pause else verdict_on(manifest, now, rules)
    if stopped := hold(draft, pause) if pause else verdict and dead_letter(draft, verdict):
        return stopped
    return acquire(draft, RunEvent.LEASE_ACQUIRED, lease_id=lease_id, holder=holder)


def may_begin(manifest: Manifest, now: datetime, rules: Rules) -> bool:
    """Return whether who has just dispatched an attempt may begin it; with the settings in force.

    Then it has not moved since: it is for others only where the step is not known here.
    """
    at = manifest.position
    if at.dispatch.provisional or rules.settings_for(manifest.step_type) is None:
        return False
    if rules.pauses and rules.pause_of(manifest.step_type) is not None:
        return False
    if _obstacle(manifest, now) is not None:
        return False
    return verdict_on(manifest, now, rules) is None


def acquired_before(draft: Draft, lease_id: str) -> Change | None:
    """Return the lease once more that this very call got; None: it got none.

    The answer to its commit was lost, and another process changed the run since. No other worker
    knows the lease, so the run would wait for its end.
    """
    lease = draft.before.position.lease
    if lease is None or lease.lease_id != lease_id or lease.expires_at <= draft.now:
        return None
    return draft.commit(Outcome.ACQUIRED)


def _not_here(draft: Draft) -> Change:
    """Leave a step that is not known here to those who know it; dispatch one anew that moved.

    A deploy made it remote, or it came from a worker that did not know it, without its settings.
    """
    settings = draft.rules.settings_for(draft.run.step_type)
    if settings is None:
        return unchanged(draft.before, Outcome.STEP_UNKNOWN)
    is_remote = settings.remote
    draft.trace(
        TraceType.STEP_REDISPATCHED,
        generation=draft.before.position.dispatch.generation,
        detail=_IS_REMOTE if is_remote else _CAME_WITHOUT_SETTINGS,
    )
    return dispatch_next(draft, Outcome.AWAITS_CLAIM if is_remote else Outcome.REDISPATCHED)


def _only_end(draft: Draft, lease: Lease) -> Change:
    """End an expired lease that the bearer of the hint cannot have."""
    ended = expire(draft.before, draft.now, rules=draft.rules, lease_id=lease.lease_id)
    if ended.outcome is not Outcome.EXPIRED:
        return ended
    if ended.manifest.paused:
        return ended._replace(outcome=Outcome.PARKED)
    remote = ended.manifest.position.dispatch.remote
    return ended._replace(outcome=Outcome.AWAITS_CLAIM if remote else Outcome.RETRY_SCHEDULED)


def _refusal(manifest: Manifest, now: datetime, generation: int) -> Change | None:
    """Return the answer to a hint that cannot get the lease, without a change; None if it may."""
    if generation > manifest.position.dispatch.generation:
        return unchanged(manifest, Outcome.REJECTED)
    if manifest.is_terminal:
        return unchanged(manifest, outcome_at_end(manifest))
    if manifest.position.children and manifest.is_resting and not manifest.paused:
        return unchanged(manifest, Outcome.RESTING)  # its worker asks for its children
    if generation < manifest.position.dispatch.generation:
        return unchanged(manifest, Outcome.STALE)
    return _obstacle(manifest, now)


def _obstacle(manifest: Manifest, now: datetime) -> Change | None:
    """Return why the bearer of the current hint cannot have the lease now; None if it can."""
    lease = manifest.position.lease
    if lease is not None and now < lease.expires_at:
        return unchanged(manifest, Outcome.LEASE_HELD, wake_task(manifest, lease))
    if manifest.paused and lease is None:
        return unchanged(manifest, Outcome.PARKED)
    is_blocked = manifest.status is BLOCKED
    if is_blocked or (manifest.position.slot_wait is not None and manifest.awaits_slot):
        return unchanged(manifest, Outcome.BLOCKED if is_blocked else Outcome.AWAITS_SLOT)
    if manifest.position.dispatch.remote and lease is None:
        return unchanged(manifest, Outcome.AWAITS_CLAIM)
    if lease is None and now + EARLY < manifest.position.dispatch.not_before:
        return unchanged(manifest, Outcome.RETRY_SCHEDULED, dispatch_task(manifest))
    return None


def take_over(draft: Draft, lease: Lease, *, lease_id: str, holder: str) -> Change:
    """Pass an expired lease on: the same generation, a new lease, a higher token.

    An attempt that hung past its deadline failed; the next one is due after its backoff.
    """
    end = lapse(draft, lease)
    if end is AttemptEnd.FAILED:
        return end_attempt(draft, end, Outcome.RETRY_SCHEDULED)
    draft.count(end)
    if verdict := verdict_on(draft.run, draft.now, draft.rules):
        return dead_letter(draft, verdict)
    return acquire(draft, RunEvent.LEASE_TAKEN_OVER, lease_id=lease_id, holder=holder)


def acquire(draft: Draft, event: RunEvent, *, lease_id: str, holder: str) -> Change:
    """Give the lease, as `give_lease` does, and nothing else."""
    give_lease(draft, event, lease_id=lease_id, holder=holder)
    return draft.commit(Outcome.ACQUIRED)


def give_lease(draft: Draft, event: RunEvent, *, lease_id: str, holder: str) -> None:
    """Give the lease, with the next token; a step that left a checkpoint goes on from there.

    Nothing here sees what a remote worker does: the process that takes its checkpoint may be killed
    before the commit, or the worker go on without an answer. So the folder is owed from here on;
    its files may be there, too.
    """
    if draft.position.dispatch.remote:
        draft.owe_folder()
        draft.run = replace(draft.run, has_files=True)
    run, at, now = draft.run, draft.position, draft.now
    is_look = at.dispatch.after_block is not None  # whose handler may well not be called
    if (kept := at.checkpoint) and not (is_look or run.has_unjudged_output):
        facts = {"phase": kept.phase, "iteration_count": kept.iteration_count}
        draft.trace_next(TraceType.CHECKPOINT_RESUMED, **facts)
    record = replace(
        run.steps[at.step],
        status=IN_PROGRESS,
        started_at=run.steps[at.step].started_at or now,
        progress=None,
    )
    position = replace(
        at,
        lease=lease_for(run, now, lease_id=lease_id, holder=holder, ttl=draft.rules.lease_ttl),
        heartbeat_at=now,
        step_started_at=at.step_started_at or now,
        dispatch=replace(
            at.dispatch, enqueued=True, redispatched=0, lost_since=None, held=None
        ),  # it is here
    )
    draft.run = replace(
        run,
        status=after(run.status, event),
        fencing_token=run.fencing_token + 1,
        steps={**run.steps, at.step: record},
        position=position,
    )


# A remote worker claims a step: it gets the lease, or the reason why there is none to have.


def claim(manifest: Manifest, now: datetime, *, rules: Rules, lease_id: str, holder: str) -> Change:
    """Give the lease on the current step to a worker that has no hint.

    An expired lease is taken over, which counts as one that expired, and may be one too many: the
    change is `dead_lettered` then. Where the attempt before hung, it failed, and the next one is
    due after its backoff: `retry_scheduled`. No claim comes too late while the run waits.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        lease_id: the name of the lease, new for each call.
        holder: the worker that claims it.

    Raises:
        LeaseHeldError: another worker holds the lease.
        NothingToClaimError: the run waits for no worker now; its state says for what.
    """
    draft = Draft(manifest, now, rules)
    if known := acquired_before(draft, lease_id):
        return known
    lease = manifest.position.lease
    if lease is not None and now < lease.expires_at:
        raise LeaseHeldError(
            run_id=manifest.run_id, holder=lease.holder, expires_at=lease.expires_at.isoformat()
        )
    if problem := _problem(manifest, now, rules):
        raise NothingToClaimError(problem=problem, run_id=manifest.run_id, state=manifest.state)
    if lease is not None:
        return take_over(draft, lease, lease_id=lease_id, holder=holder)
    if verdict := verdict_on(manifest, now, rules):
        return dead_letter(draft, verdict)
    return acquire(draft, RunEvent.LEASE_ACQUIRED, lease_id=lease_id, holder=holder)


def _problem(manifest: Manifest, now: datetime, rules: Rules) -> str | None:
    """Return why the run has no step to be taken now, or None."""
    is_held = manifest.paused or manifest.is_resting
    if manifest.is_terminal or is_held or manifest.status is BLOCKED:
        rests = ", and waits for its children" if manifest.is_resting else ""
        return f"run {manifest.run_id} is {manifest.state}{rests}"
    if rules.settings_for(manifest.step_type) is None:
        return f"this deploy knows no step {manifest.position.step!r}"
    if manifest.position.dispatch.provisional:
        return f"run {manifest.run_id} came from a worker that did not know its step; claim again"
    if (pause := rules.pause_of(manifest.step_type)) is not None:
        return pause.words
    due = manifest.position.dispatch.not_before
    if manifest.position.lease is None and now + EARLY < due:
        return f"run {manifest.run_id} is tried again at {due.isoformat()}"
    return None


# The eager hand-off: who starts a run or hands a step off takes the lease in the same commit.


Before = TypeVar("Before", Manifest, Manifest | None)


def then_arrive(
    first: Callable[[Before, datetime], Change],
    *,
    rules: Rules,
    lease_id: str,
    holder: str,
    in_request: bool = False,
) -> Callable[[Before, datetime], Change]:
    """Return a start or settlement, followed at once by the arrival of the hint that it owes.

    A worker that would take that hint from its own queue a moment later saves the task, a
    transaction and its sync. The next step is dispatched as always, with its own generation,
    lease and token, and needs no queue only because its worker is already there.

    Args:
        first: the start or settlement.
        rules: the rules in force.
        lease_id: the name of the next lease.
        holder: the worker.
        in_request: it works in a request, which ends with the dispatch deadline of the step that
            is settled: only the next step may follow, and only where it fits into what is left.
    """

    def both(manifest: Before, now: datetime) -> Change:
        change = first(manifest, now)
        if change.outcome not in DISPATCHES:
            return change
        if not change.changed:
            return _again(Draft(change.manifest, now, rules), lease_id, change)
        if not may_begin(change.manifest, now, rules):
            return change
        draft = Draft(manifest or change.manifest, now, rules)
        draft.run = change.manifest
        if in_request:
            dispatch = None if manifest is None else _in_request(manifest, change, now, rules)
            if dispatch is None:
                return change
            draft.position = replace(draft.position, dispatch=dispatch)
        give_lease(draft, RunEvent.LEASE_ACQUIRED, lease_id=lease_id, holder=holder)
        return draft.added_to(change)

    return both


def _in_request(before: Manifest, change: Change, now: datetime, rules: Rules) -> Dispatch | None:
    """Return the dispatch of the next step in the request of the one before; None: it may not."""
    run, lease, last = change.manifest, before.position.lease, before.position.dispatch
    settings = rules.settings_for(run.step_type)
    if lease is None or settings is None or change.outcome is not Outcome.HANDED_OFF:
        return None
    left = deadline_of(before, lease) - now
    task_of = last.generation if last.task_of is None else last.task_of
    return dispatch_in_request(run.position.dispatch, settings, left, task_of)


def _again(draft: Draft, lease_id: str, answer: Change) -> Change:
    """Return the first answer; with the lease that came with it, unless that was taken over.

    The answer was lost, so the step has not begun: its lease runs from now, as after an answer.
    """
    run, lease = draft.run, draft.position.lease
    if lease is None or lease.lease_id != lease_id:
        return answer
    ttl = draft.rules.lease_ttl
    draft.position = replace(
        draft.position,
        lease=lease_for(run, draft.now, lease_id=lease_id, holder=lease.holder, ttl=ttl),
        heartbeat_at=draft.now,
    )
    return draft.commit(answer.outcome)
