"""How a run moves on: the next dispatch, or the next step, or the end of the plan."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.change import Change, Draft
from leasehold.domain.checkpoint import CALL_UNCONFIRMED, UnconfirmedCall
from leasehold.domain.children import ItemError, ItemRecord, Lane, flat, without_unit
from leasehold.domain.dispatch import dispatch_of, provisional_dispatch
from leasehold.domain.manifest import Manifest, Position
from leasehold.domain.manifest_parts import Block, Dispatch, ErrorRecord, SkippedStep, StepRecord
from leasehold.domain.recorded_calls import outlasting
from leasehold.domain.signal import (
    WAITING,
    Signal,
    Wait,
    place_of,
    signal_for,
    with_taken,
    without_values_of,
)
from leasehold.domain.spend import BUDGET_EXCEEDED, UsedUp
from leasehold.domain.status import Outcome, RunEvent, RunStatus, after
from leasehold.domain.stored import make, replace
from leasehold.domain.timestamps import stamp
from leasehold.domain.trace import TraceType, event_of
from leasehold.domain.trial_record import TrialRecord
from leasehold.domain.trials import (
    TrialsEnd,
    ends_trials,
    reviewed_step,
    trial_at,
    with_best_trial,
    with_trial_filed,
)

_NOW: Final = timedelta()
_CONFIRM: Final = (
    "Find out. If it has, `leasehold approve RUN --output @FILE` with its result as JSON; if not, "
    "`leasehold retry RUN` makes it again; or cancel the run."
)
_SEND: Final = "Send it (`leasehold signal RUN {} --json VALUE`), or cancel the run."
_REMEDY: Final = "Give it more (`leasehold resume RUN --budget usd=…`), or cancel it."


def dispatch_next(
    draft: Draft,
    outcome: Outcome,
    *,
    wait: timedelta = _NOW,
    redispatched: int = 0,
    lost_since: datetime | None = None,
    deferred: int = 0,
) -> Change:
    """Dispatch the current step once more, as the next generation.

    A paused run stays where it is, and one that has used up its budget is blocked. A step that this
    deploy does not know is left to those who do.

    Args:
        draft: the change so far.
        outcome: the answer for the caller.
        wait: how long the attempt waits.
        redispatched: how many tasks were lost before this one, without a lease in between.
        lost_since: since when they are lost, and a process looks.
        deferred: how many attempts in a row before this one met an outage.
    """
    run = draft.run
    if run.paused:
        if draft.before.block is not None:
            # the block keeps its own
            draft.position = replace(
                draft.position, dispatch=under_next_generation(run.position.dispatch)
            )
        return draft.commit(outcome)
    if run.position.wait is not None and (waiting := _wait(draft, run.position.wait)):
        return waiting
    if (waited := draft.position.slot_wait) is not None and not waited.called:
        draft.position = replace(draft.position, slot_wait=replace(waited, called=True))
    dispatch = _next_dispatch(draft, draft.now + wait)
    if run.position.unconfirmed_call is not None:
        return _block_for_call(draft, dispatch, run.position.unconfirmed_call)
    has_budget = run.budget is not None or dispatch.budget is not None
    if has_budget and not run.has_unjudged_output and (used_up := run.used_up(dispatch.budget)):
        return _block_over_budget(draft, dispatch, used_up)
    if redispatched or lost_since or deferred:
        dispatch = replace(
            dispatch, redispatched=redispatched, lost_since=lost_since, deferred=deferred
        )
    draft.position = replace(draft.position, dispatch=dispatch)
    return draft.commit(outcome)


def _block_over_budget(draft: Draft, dispatch: Dispatch, used_up: UsedUp) -> Change:
    """Block a run whose next attempt would spend more than it may: a person decides."""
    block = Block(code=BUDGET_EXCEEDED, finding=used_up.finding, remediation=_REMEDY)
    return _block(draft, dispatch, block, RunEvent.BUDGET_EXCEEDED, TraceType.BUDGET_EXCEEDED)


def _block_for_call(draft: Draft, dispatch: Dispatch, call: UnconfirmedCall) -> Change:
    """Block a run that may have made a call which must not be made twice: a person decides."""
    finding = (
        f"Attempt {call.attempt} ended between the call {call.key!r} and its record, so it may "
        f"have happened. It was called with: {call.arguments or 'nothing'}."
    )
    block = Block(code=CALL_UNCONFIRMED, finding=finding, remediation=_CONFIRM)
    return _block(draft, dispatch, block, RunEvent.CALL_UNCONFIRMED, TraceType.CALL_UNCONFIRMED)


def _wait(draft: Draft, wait: Wait) -> Change | None:
    """Block a run until the signal comes that it waits for; None: it is there.

    Its sender writes the same document: the signal is seen here, or its sender finds the wait.
    """
    run, at = draft.run, draft.position
    taker = place_of(at.step, at.trial)
    found = signal_for(run.signals, wait.name, taker)
    if found is None:
        return block_for_wait(draft, wait)
    draft.run = replace(run, signals=with_taken(run.signals or (), wait.name, taker))
    draft.position = replace(draft.position, wait=None)
    if run.wait_rule_at(at.step) is not None:
        return _pass_on(draft, found)
    draft.count_anew()
    return None


def _pass_on(draft: Draft, found: Signal) -> Change:
    """Hand a signal on as the output of the place that waited for it."""
    is_missed = found.is_missed is not None
    draft.step = replace(
        draft.step,
        completed_at=draft.now,
        output="null" if is_missed else found.inline,
        output_ref=found.ref,
        output_status="SUCCESS",
    )
    return hand_off(draft, RunEvent.WAIT_OVER)


def begin_wait(draft: Draft) -> None:
    """Have the place at hand wait from now on, if it is one that waits for a signal."""
    at = draft.position
    rule = draft.run.wait_rule_at(at.step)
    if rule is None:
        return
    draft.position = replace(
        at, wait=rule.begun(at.step, draft.now), step_started_at=at.step_started_at or draft.now
    )
    draft.step = replace(draft.step, started_at=draft.step.started_at or draft.now)


def wait_words(wait: Wait) -> str:
    """Say what is waited for, since when, until when and what then."""
    why = f" One was refused: {wait.refused}" if wait.refused else ""
    what = f"It waits for the signal {wait.name!r} since {stamp(wait.since)}"
    if wait.until is None:
        return f"{what}, for any time.{why}"
    if wait.is_over:
        return f"{what}; its time was over at {stamp(wait.until)}.{why}"
    return f"{what}, until {stamp(wait.until)}; then {wait.then}.{why}"


def block_for_wait(draft: Draft, wait: Wait) -> Change:
    """Block a run that waits for a signal; nothing runs meanwhile, and nothing is written."""
    draft.position = replace(draft.position, wait=wait)
    block = Block(code=WAITING, finding=wait_words(wait), remediation=_SEND.format(wait.name))
    dispatch = _next_dispatch(draft, draft.now)
    return _block(draft, dispatch, block, RunEvent.WAIT_BEGUN, None)


def _block(
    draft: Draft, dispatch: Dispatch, block: Block, event: RunEvent, type_: TraceType | None
) -> Change:
    """Block a run before its next attempt; nothing but a decision or a signal has it go on."""
    draft.step = replace(draft.step, status=RunStatus.BLOCKED)
    draft.run = replace(draft.run, status=after(draft.run.status, event), block=block)
    draft.position = replace(draft.position, dispatch=replace(dispatch, after_block=None))
    if type_ is not None:
        draft.trace_next(
            type_,
            reason=block.code,
            detail=block.finding,
            remediation=block.remediation,
        )
    return draft.commit(Outcome.BLOCKED)


def _next_dispatch(draft: Draft, not_before: datetime) -> Dispatch:
    """Return the dispatch of the current step, under the next generation."""
    run, at = draft.run, draft.position
    settings, generation = draft.rules.settings_for(run.step_type), at.dispatch.generation + 1
    if settings is None:
        dispatch = provisional_dispatch(
            at.dispatch,
            generation=generation,
            step=at.step,
            trial=at.trial,
            not_before=not_before,
        )
    else:
        dispatch = dispatch_of(
            settings,
            step=at.step,
            generation=generation,
            trial=at.trial,
            not_before=not_before,
            nonce=at.dispatch.nonce,
            traceparent=at.dispatch.traceparent,
            max_retries=run.max_retries,
        )
    block = _looked_at(run)
    if run.has_unjudged_output:
        return to_be_judged(dispatch, block)
    return dispatch if block is None else replace(dispatch, after_block=block)


def to_be_judged(dispatch: Dispatch, block: Block | None) -> Dispatch:
    """Return the dispatch of a step whose output is there: it is judged here, not elsewhere.

    Args:
        dispatch: any other one.
        block: for which it could not be judged so far; None: no block kept it from that.
    """
    return replace(dispatch, remote=False, schedule_to_start_s=None, after_block=block)


def _looked_at(run: Manifest) -> Block | None:
    """Return the block that is looked at as long as nothing is known to have become of it.

    A failure says that the handler was called; with an output that is kept, only its gates were.
    """
    dispatch = run.position.dispatch
    if (dispatch.step, dispatch.trial) != (run.position.step, run.position.trial):
        return None
    is_open = run.status is not RunStatus.ERROR or run.has_unjudged_output
    return dispatch.after_block if is_open else None


def under_next_generation(dispatch: Dispatch) -> Dispatch:
    """Return the dispatch of a run that stops, under its own generation.

    A generation names one attempt or one block, and never two: a decision that names it cannot
    hit a block that its caller has not seen.
    """
    return replace(dispatch, generation=dispatch.generation + 1)


def hand_off(draft: Draft, event: RunEvent) -> Change:
    """Move on from the current step: to the next one, another trial or item, or to the end."""
    if draft.before.lane is not None:
        return next_item(draft, event, draft.before.lane)
    if draft.before.trials is not None and end_trial(draft):
        return _open_trial(draft)
    now, step = draft.now, draft.position.step
    skip_to = draft.steps[step].skip_to
    is_first = skip_to is None and draft.before.position.step == step  # no wait was passed on
    following = (draft.before if is_first else draft.run).next_step
    if following is None:
        return _end(draft, RunEvent.LAST_STEP_DONE)
    draft.step = replace(draft.step, status=RunStatus.COMPLETED, handed_off_at=now)
    if skip_to is not None:
        _leave_out_before(draft, following)
    _go_to(draft, event, following)
    return dispatch_next(draft, Outcome.HANDED_OFF)


def _leave_out_before(draft: Draft, target: str) -> None:
    """Take the steps before one out of the plan: so it is the next one, for all who read it.

    A version that knows nothing of skips gives each step the output of the one before it in the
    plan.
    """
    run, step = draft.run, draft.position.step
    place, to = run.plan.index(step) + 1, run.plan.index(target)
    left_out = tuple([make(SkippedStep, step=name, by=step) for name in run.plan[place:to]])
    if left_out:
        plan = run.plan[:place] + run.plan[to:]
        draft.run = replace(run, plan=plan, skipped=(run.skipped or ()) + left_out)


def _end(draft: Draft, event: RunEvent) -> Change:
    """Complete the run."""
    draft.step = replace(draft.step, status=RunStatus.COMPLETED)
    run = draft.run
    draft.run = replace(
        run,
        status=after(run.status, event),
        error=None,
        error_at=None,
        block=None,
        paused=False,
        completed_at=draft.now,
    )
    draft.position = replace(
        draft.position,
        lease=None,
        checkpoint=None,
        calls=run.position.calls and outlasting(run),
        note=None,
    )
    return draft.commit(Outcome.COMPLETED)


def to_run_again(record: StepRecord) -> StepRecord:
    """Return the record of a step that is to run once more, without what its last attempt left."""
    return replace(
        record,
        status=RunStatus.PENDING,
        completed_at=None,
        bootstrap_seconds=None,
        execution_seconds=None,
        cold_start=None,
        first_tool=None,
        output=None,
        output_ref=None,
        output_status=None,
        summary=None,
        skip_to=None,
        rejected=None,
        verdict=None,
    )


# A lane goes on to its next item. What became of the one before is a document beside its parent,
# written by the same commit: so it is written once, and the lane's document stays small.


def next_item(
    draft: Draft, event: RunEvent, lane: Lane, *, failed: ErrorRecord | None = None
) -> Change:
    """Record what became of the items at hand, and go on to the next ones, or end the lane.

    Args:
        draft: the change so far; the record of the step has the output.
        event: what happened.
        lane: what it had to do.
        failed: why there is no output; None: there is one.
    """
    (first, end), made, at = lane.unit, draft.step, draft.position
    item = ItemRecord(
        first=first,
        count=end - first,
        text=None if failed else made.output,
        ref=None if failed else made.output_ref,
        output_status=None if failed else made.output_status,
        error=None
        if failed is None
        else ItemError(type=failed.type, code=failed.code, message=failed.message),
        lane=draft.before.run_id,
        attempts=at.attempt,
        at=draft.now,
    )
    todo = without_unit(lane.todo, lane.batch)
    count = end - first
    draft.run = replace(
        draft.run,
        lane=replace(
            lane,
            ahead=flat(todo),
            done=lane.done + (0 if failed else count),
            failed=lane.failed + (count if failed else 0),
        ),
        owed=draft.run.owed[-_MOST_OWED:],
    )
    draft.step = replace(to_run_again(draft.step), progress=None)
    if not todo:
        return _end(draft, RunEvent.LAST_ITEM_LEFT if failed else RunEvent.LAST_STEP_DONE)._replace(
            item=item
        )
    _go_to(draft, event, at.step, trial=todo[0][0] + 1)
    return dispatch_next(draft, Outcome.HANDED_OFF)._replace(item=item)


#: So many folders of items that are over are noted to be deleted; the rest goes with the run.
_MOST_OWED: Final = 4


def _open_trial(draft: Draft) -> Change:
    """Begin another trial: its author is dispatched."""
    author, *_ = draft.run.looped_steps
    why = opening_words(draft.run)
    draft.run = replace(draft.run, steps=with_trial_filed(draft.run))
    _go_to(draft, RunEvent.TRIAL_OPENED, author)
    draft.trace_next(TraceType.AUTHOR_SLOT_OPENED, detail=why)
    return dispatch_next(draft, Outcome.HANDED_OFF)


def _go_to(draft: Draft, event: RunEvent, step: str, trial: int | None = None) -> None:
    """Leave the current step, trial or item for another one, which has had no attempt yet."""
    run, before, dispatch = draft.run, draft.position, draft.position.dispatch
    if dispatch.after_block is not None:
        dispatch = replace(dispatch, after_block=None)
    position = make(
        Position,
        step=step,
        trial=trial or (1 if run.trials is None else trial_at(run, step)),
        dispatch=dispatch,
        calls=before.calls and outlasting(run),
        last_settlement=before.last_settlement,
    )
    signals = run.signals and without_values_of(run.signals, place_of(before.step, before.trial))
    draft.run = replace(
        draft.run,
        status=after(run.status, event),
        position=position,
        signals=signals,
        error=None,
        error_at=None,
        block=None,
    )
    if run.places is not None:
        begin_wait(draft)


# The end of a trial: another one begins, or the best of them is put in place.


def end_trial(draft: Draft) -> bool:
    """Return whether another trial is to begin, where a reviewer's output is handed off.

    If none is, the best trial has its place in the records of the steps by then.
    """
    run = draft.run
    author = reviewed_step(run)
    if author is None or run.steps[run.position.step].verdict is None:
        return False
    end = ends_trials(run)
    if end is None:
        return True
    if end is TrialsEnd.REFUSED:
        status = run.steps[author].output_status
        detail = f"The output of step {author} is {status}: no further trial begins."
        draft.trace(TraceType.AUTHOR_SLOT_REFUSED, reason=end.value, detail=detail)
    steps, best = with_best_trial(run)
    draft.run = replace(draft.run, steps=steps)
    _trace_choice(draft, end, best)
    return False


def opening_words(before: Manifest) -> str:
    """Say why a further trial begins after this step."""
    reviewer, verdict = before.position.step, before.steps[before.position.step].verdict
    score = "" if verdict is None else f", score {verdict.score:g}"
    return f"step {reviewer} did not settle{score}"


def _trace_choice(draft: Draft, end: TrialsEnd, best: TrialRecord) -> None:
    """Trace which trial counts, as an event of that trial."""
    run, verdict = draft.before, best.verdict
    made = trial_at(run, run.position.step)
    assert run.trials is not None  # noqa: S101 - it had trials
    assert verdict is not None  # noqa: S101 - by which it was chosen
    event = event_of(
        replace(run, position=replace(run.position, trial=best.trial)),
        TraceType.TRIAL_CHOSEN,
        draft.now,
        reason=end.value,
        detail=f"score {verdict.score:g}, after {made} of {run.trials.max_trials} trials",
        score=verdict.score,
    )
    draft.events += (event,)
