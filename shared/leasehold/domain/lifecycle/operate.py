"""The operations of people on a run: when each is allowed. The trace has actor and reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from leasehold.domain.change import Change, Draft, unchanged, with_index_fields
from leasehold.domain.checkpoint import CallResult, KeptValue
from leasehold.domain.children import ITEMS_MISSING, ItemsOf, with_word
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import question_task
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle.block import look
from leasehold.domain.lifecycle.handoff import begin_wait, dispatch_next, hand_off
from leasehold.domain.lifecycle.kept_steps import (
    begins_at,
    goes_on,
    kept_counts,
    kept_steps,
    steps_to_go_on,
    with_work_of,
    without_own_work,
)
from leasehold.domain.lifecycle.settle import end_attempt, lapse
from leasehold.domain.lifecycle.start import NewRun, new_manifest
from leasehold.domain.lifecycle.termination import cancelled, trace_termination
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Block, StackRequest, TrialVerdict
from leasehold.domain.notes import said
from leasehold.domain.spend import BUDGET_EXCEEDED, NOTHING, Spend, SpendLimit, limit_of
from leasehold.domain.status import AttemptEnd, Outcome, RunEvent, RunStatus, Termination, after
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType
from leasehold.errors import BudgetUsedUpError, NotAllowedError


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


def _is_over_budget(manifest: Manifest) -> bool:
    block = manifest.block
    is_blocked = manifest.status is RunStatus.BLOCKED
    return is_blocked and block is not None and block.code == BUDGET_EXCEEDED


#: When an operation is allowed: the words for people, and the same for the engine.
ALLOWED: Final[Mapping[Operation, tuple[str, Callable[[Manifest], bool]]]] = {
    Operation.PAUSE: ("live and not paused", lambda m: _is_live(m) and not m.paused),
    Operation.RESUME: (
        "paused, or blocked over its budget",
        lambda m: _is_live(m) and (m.paused or _is_over_budget(m)),
    ),
    Operation.CANCEL: ("live", _is_live),
    Operation.RETRY: (
        "in ERROR or BLOCKED and not dead-lettered",
        lambda m: _is_live(m) and m.status in (RunStatus.ERROR, RunStatus.BLOCKED),
    ),
    Operation.APPROVE: (
        "BLOCKED with an output that was kept, or for a call that may have happened",
        lambda m: (
            _is_live(m)
            and m.status is RunStatus.BLOCKED
            and (
                m.steps[m.position.step].kept_output is not None
                or m.position.unconfirmed_call is not None
            )
        ),
    ),
    Operation.RECREATE: (
        "completed, cancelled or dead-lettered, and no lane (recreate its parent)",
        lambda m: m.is_terminal and m.is_listed,
    ),
}


def pause(manifest: Manifest, now: datetime, *, rules: Rules, actor: str, reason: str) -> Change:
    """Let a running attempt end, and dispatch nothing more."""
    check_allowed(manifest, Operation.PAUSE)
    draft = Draft(manifest, now, rules)
    draft.trace(TraceType.RUN_PAUSED, actor=actor, reason=reason)
    draft.run = replace(draft.run, status=after(manifest.status, RunEvent.PAUSED), paused=True)
    _tell(draft, Operation.PAUSE)
    return draft.commit(Outcome.PAUSED)


def resume(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    actor: str,
    reason: str,
    budget: SpendLimit | None = None,
) -> Change:
    """Dispatch the next generation now; an attempt that still runs goes on.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        actor: who asks.
        reason: why.
        budget: in place of what the run, and its step, may spend; a kind that it leaves out is as
            before. None: all as before.

    Raises:
        NotAllowedError: the run is neither paused nor blocked over its budget.
        BudgetUsedUpError: it has spent all that it may.
    """
    check_allowed(manifest, Operation.RESUME)
    draft = Draft(manifest, now, rules)
    facts = {"actor": actor, "reason": reason, "budget": None if budget is None else budget.words}
    if budget is not None:
        draft.run = replace(draft.run, budget=limit_of(manifest.budget, budget))
        raised = limit_of(manifest.position.step_budget, budget)
        draft.position = replace(draft.position, step_budget=raised)
    _check_budget(draft)
    lease = manifest.position.lease
    if lease is None or now < lease.expires_at:
        draft.trace(TraceType.RUN_RESUMED, **facts)
        return _resume(draft)
    end = lapse(draft, lease)
    draft.trace(TraceType.RUN_RESUMED, **facts)
    ended = end_attempt(draft, end, Outcome.RESUMED)
    if ended.manifest.is_terminal:
        return ended
    then = _resume(Draft(ended.manifest, now, rules))
    return then.following(ended)


def _resume(draft: Draft) -> Change:
    was_over = _is_over_budget(draft.run)
    status = after(draft.run.status, RunEvent.BUDGET_RAISED if was_over else RunEvent.RESUMED)
    block = None if was_over else draft.run.block
    draft.step = replace(draft.step, status=status)
    draft.run = replace(draft.run, paused=False, status=status, block=block)
    if draft.run.is_resting:
        return _rest_on(draft, Operation.RESUME, Outcome.RESUMED)
    if draft.position.lease is not None or status is RunStatus.BLOCKED:
        return draft.commit(Outcome.RESUMED)
    return dispatch_next(draft, Outcome.RESUMED)


def _tell(draft: Draft, word: Operation) -> None:
    """Have all children of the run hear a word of people on it, if it waits for any."""
    if draft.position.children is not None:
        children = with_word(draft.position.children, word.value)
        draft.position = replace(draft.position, children=children)


def _rest_on(draft: Draft, word: Operation, outcome: Outcome) -> Change:
    """Wait on for the children, which hear the word; they may be through meanwhile."""
    _tell(draft, word)
    change = draft.commit(outcome)
    return (
        change if change.manifest.is_idle else change._replace(wake=question_task(change.manifest))
    )


def _check_budget(draft: Draft) -> None:
    """Refuse to go on where the run has spent all that it may, by the settings in force."""
    run, at = draft.run, draft.position
    settings = draft.rules.settings_for(run.step_type)
    of_step = at.dispatch.budget if settings is None else settings.frozen.budget
    if used_up := run.used_up(of_step):
        raise BudgetUsedUpError(
            run_id=run.run_id,
            finding=used_up.finding,
            example=f"--budget {used_up.limit.more_for(used_up.spend)}",
        )
    before = draft.before
    if not (before.is_resting and _is_over_budget(before) and before.block and before.budget):
        return
    if run.budget is None or not run.budget.exceeds(before.budget):  # its children have spent it
        limit = before.budget
        example = f"--budget {limit.more_for(limit.reserved(NOTHING))}"
        raise BudgetUsedUpError(run_id=run.run_id, finding=before.block.finding, example=example)


def cancel(manifest: Manifest, now: datetime, *, rules: Rules, actor: str, reason: str) -> Change:
    """End the run for good; what a running attempt still answers is discarded."""
    check_allowed(manifest, Operation.CANCEL)
    lease = manifest.position.lease
    # the worker that holds the lease is answered as if it had settled its attempt so
    fence = None if lease is None else Fence(lease.lease_id, manifest.fencing_token)
    draft = Draft(manifest, now, rules, fence)
    draft.trace(TraceType.RUN_CANCELLED, actor=actor, reason=reason)
    if lease is not None:
        trace_termination(draft, lease, Termination.CANCELLED, cancelled(actor, reason))
        draft.end_attempt(Termination.CANCELLED.value)
    status = after(manifest.status, RunEvent.CANCELLED)
    draft.step = replace(draft.step, status=status)
    draft.run = replace(draft.run, status=status, cancelled=True, paused=False)
    draft.position = replace(draft.position, lease=None)
    _tell(draft, Operation.CANCEL)
    return draft.commit(Outcome.CANCELLED)


def retry(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    actor: str,
    reason: str,
    note: str | None = None,
    anew: bool = False,
) -> Change:
    """Dispatch the next generation of the step now; it finds what the step has kept so far.

    A block that heals by itself is looked at now; of an output that was not judged yet, the gates
    are asked alone.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        actor: who asks.
        reason: why.
        note: words for the handler, until the step is handed off; None: those before, if any.
        anew: drop what the step has kept: its checkpoint, results of calls, and trials.

    Raises:
        NotAllowedError: the run is neither in ERROR nor BLOCKED.
        BudgetUsedUpError: it is blocked over its budget.
    """
    check_allowed(manifest, Operation.RETRY)
    draft = Draft(manifest, now, rules)
    if _is_over_budget(manifest):
        _check_budget(draft)
    noted = said(note) if note else None
    draft.trace(TraceType.RUN_RETRIED, actor=actor, reason=reason, note=noted, anew=anew or None)
    if manifest.is_resting:
        return _retry_children(draft)
    is_unjudged = manifest.has_unjudged_output
    block = manifest.block or (manifest.position.dispatch.after_block if is_unjudged else None)
    is_look = is_unjudged or (block is not None and block.heals)
    if is_look and not anew:
        return _look_now(draft, block, note)
    if manifest.steps[manifest.position.step].kept_output is not None:
        draft.count(AttemptEnd.REPEATED)
    if anew:
        rest = without_own_work(draft.run)
        draft.run = replace(draft.run, steps=rest.steps, position=rest.position)
    if note is not None:
        draft.position = replace(draft.position, note=note)
    return _go_on(draft, RunEvent.RETRIED, Outcome.RETRIED)


def _retry_children(draft: Draft) -> Change:
    """Have the children that wait for a person try again; or begin new ones for what is missing."""
    block = draft.before.block
    if block is not None and block.code == ITEMS_MISSING:
        draft.position = replace(draft.position, children=None)
        return _go_on(draft, RunEvent.RETRIED, Outcome.RETRIED)
    draft.step = replace(draft.step, status=RunStatus.PENDING)
    draft.run = replace(draft.run, status=after(draft.before.status, RunEvent.RETRIED), block=None)
    return _rest_on(draft, Operation.RETRY, Outcome.RETRIED)


def _go_on(draft: Draft, event: RunEvent, outcome: Outcome) -> Change:
    """Dispatch the next attempt of a step that a person has looked at."""
    draft.step = draft.step.to_run_again()
    draft.run = replace(draft.run, status=after(draft.before.status, event), block=None)
    dispatch = replace(draft.before.position.dispatch, after_block=None)
    draft.position = replace(draft.position, dispatch=dispatch, unconfirmed_call=None, wait=None)
    begin_wait(draft)
    draft.count_anew()
    change = dispatch_next(draft, outcome)
    return change._replace(kept=kept_counts(change.manifest))


def _look_now(draft: Draft, block: Block | None, note: str | None) -> Change:
    draft.position = replace(draft.position, note=draft.position.note if note is None else note)
    draft.count_anew()
    change = look(draft, block and replace(block, looks=0), RunEvent.RETRIED, Outcome.RETRIED)
    return change._replace(kept=kept_counts(change.manifest))


def approve(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    actor: str,
    reason: str,
    edited: KeptValue | None = None,
    verdict: TrialVerdict | None = None,
    told: CallResult | None = None,
) -> Change:
    """Hand off the output that was kept, or the one that a person puts in its place.

    Where a call may have happened, the step goes on with its result.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        actor: who asks.
        reason: why.
        edited: the output in place of the one that was kept, as a whole one; None: that one.
        verdict: what the edited output of a reviewer says of the trial.
        told: the result of the call; None: its worker has recorded it since.

    Raises:
        NotAllowedError: neither an output nor a call waits for a decision.
    """
    check_allowed(manifest, Operation.APPROVE)
    draft = Draft(manifest, now, rules)
    if (call := manifest.position.unconfirmed_call) is not None:
        draft.trace(TraceType.RUN_APPROVED, actor=actor, reason=reason, call=call.key)
        if told is not None:
            draft.position = replace(draft.position, calls=(*draft.position.calls, told))
        return _go_on(draft, RunEvent.APPROVED, Outcome.APPROVED)
    is_edited = edited is not None or None
    draft.trace(TraceType.RUN_APPROVED, actor=actor, reason=reason, edited=is_edited)
    if edited is not None:
        draft.step = replace(
            draft.step,
            output=edited.text,
            output_ref=edited.ref,
            output_status="SUCCESS",
            summary=None,
            verdict=verdict,
        )
    change = hand_off(draft, RunEvent.APPROVED)
    if change.outcome is Outcome.HANDED_OFF:
        return change._replace(outcome=Outcome.APPROVED)
    return change


def recreate(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    new: NewRun,
    actor: str,
    reason: str,
    from_step: str | None = None,
    keep_partial: bool = False,
    anew: bool = False,
    lost: Collection[str] = (),
    items_at: str | None = None,
) -> Change:
    """Begin a new run, with the outputs before the step that it begins at. Both know the other.

    Where that is the step that the old run stopped at, the new one goes on with what the step has
    kept: it is in the same trial, with its checkpoint and its results of calls. A PARTIAL output
    before it is kept without a request then, unless the step is named: the old run went
    on with it.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        new: what the new run is started with.
        actor: who asks.
        reason: why.
        from_step: where the new run begins; None: see `begins_at`.
        keep_partial: keep outputs of status PARTIAL, too.
        anew: keep nothing of the step that it begins at.
        lost: artifacts that are not there any more.
        items_at: the old run's place whose finished items the new one keeps where it begins; None:
            none, unless it goes on where the old one stopped.

    Raises:
        UnknownKeyError: this deploy does not know the step.
        NotAllowedError: the run is still live.
        InvalidRequestError: the plan has no such step, or an output before it is missing.
        PartialOutputError: an output before it is PARTIAL, and `keep_partial` is not said.
    """
    check_allowed(manifest, Operation.RECREATE)
    step = begins_at(manifest, new, from_step)
    new = new._replace(recreated_from=manifest.run_id)
    is_continued = goes_on(manifest, new, step)
    keeps_work = is_continued and not anew
    keep_partial = keep_partial or from_step is None
    steps = (steps_to_go_on if keeps_work else kept_steps)(
        manifest, new, step, keep_partial=keep_partial
    )
    created = new_manifest(now, rules=rules, new=new, step=step, steps=steps)
    if keeps_work:
        created = with_index_fields(with_work_of(manifest, created, lost), rules.grace)
    items_at = items_at or (step if keeps_work else None)
    if items_at and has_items(created, step) and has_items(manifest, items_at):
        done = ItemsOf(run_id=manifest.run_id, life=manifest.life, place=items_at)
        created = replace(created, position=replace(created.position, items_of=done))
    if created.wait_rule_at(step) is not None:
        created = _begun_waiting(created, now, rules)
    if is_continued:
        created = replace(created, position=replace(created.position, note=manifest.position.note))
    draft = Draft(manifest, now, rules)
    draft.trace(
        TraceType.RUN_RECREATED,
        actor=actor,
        reason=reason,
        recreated_as=new.run_id,
        anew=anew or None,
    )
    created = replace(created, spent_before=_nothing_as_none(created.spend))
    draft.run = replace(draft.run, recreated_as=(*manifest.recreated_as, new.run_id))
    return draft.commit(Outcome.RECREATED, created)._replace(kept=kept_counts(created))


def has_items(run: Manifest | NewRun, name: str) -> bool:
    """Return whether a place of the plan of a run works item by item."""
    place = None if run.places is None else run.places.get(name)
    return place is not None and place.each is not None


def _begun_waiting(created: Manifest, now: datetime, rules: Rules) -> Manifest:
    """Return a new run that begins with a wait; who asks for it sees that it waits."""
    draft = Draft(created, now, rules)
    begin_wait(draft)
    waiting = dispatch_next(draft, Outcome.STARTED).manifest
    return replace(waiting, announcement=None, traced=0)


def _nothing_as_none(spend: Spend) -> Spend | None:
    return None if spend.is_nothing else spend


def request_stack(manifest: Manifest, now: datetime, *, rules: Rules, actor: str) -> Change:
    """Ask the attempt that runs what it does now; its worker answers with its next renewal.

    The request is a part of the lease and ends with it. A second one before the answer is the same.

    Raises:
        NotAllowedError: no attempt runs, or none that could hear of it.
    """
    lease, dispatch = manifest.position.lease, manifest.position.dispatch
    allowed = ""
    if lease is None:
        allowed = "at work in an attempt"
    elif lease.expires_at <= now:
        heard_at = manifest.position.heartbeat_at or lease.acquired_at
        allowed = f"at work, and its worker was last heard of at {heard_at.isoformat()}"
    elif dispatch.remote:
        allowed = "at work here, and a remote worker has it, which alone knows what it does"
    elif dispatch.heartbeat_s is None:
        allowed = "at work in a step with a heartbeat, by which its worker hears of requests"
    if lease is None or allowed:
        raise NotAllowedError(
            operation="take the stack of",
            run_id=manifest.run_id,
            state=manifest.state,
            allowed=allowed,
        )
    if lease.stack_request is not None:
        return unchanged(manifest, Outcome.STACK_REQUESTED)
    draft = Draft(manifest, now, rules)
    requested = replace(lease, stack_request=StackRequest(actor=actor, at=now))
    draft.position = replace(draft.position, lease=requested)
    return draft.commit(Outcome.STACK_REQUESTED)


def is_allowed(manifest: Manifest, operation: Operation) -> bool:
    """Return whether the state of the run allows the operation."""
    _, allows = ALLOWED[operation]
    return allows(manifest)


def decisions(manifest: Manifest) -> tuple[Operation, ...]:
    """Return what a person can do about a run that waits for one; nothing, for any other."""
    if manifest.paused:
        wanted: tuple[Operation, ...] = (Operation.RESUME, Operation.CANCEL)
    elif _is_over_budget(manifest):
        wanted = (Operation.RESUME, Operation.CANCEL)
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
