"""How a run moves on, from top to bottom: from what is at hand to what comes next.

`hand_off` sees what comes next: another item, another trial, another step, or the end of the plan.
All but the end go to a new place, which `dispatch_next` begins: with an attempt, unless something
keeps the run from it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leasehold.domain.change import Change, Draft
from leasehold.domain.children import ItemError, ItemRecord, Lane
from leasehold.domain.dispatch import dispatch_of, provisional_dispatch
from leasehold.domain.lifecycle.stop import stop_for_call, stop_for_signal, stop_over_budget
from leasehold.domain.manifest import Manifest, Position
from leasehold.domain.manifest_parts import Dispatch, ErrorRecord, SkippedStep
from leasehold.domain.recorded_calls import outlasting
from leasehold.domain.signal import Signal, place_of, signal_for, with_taken, without_values_of
from leasehold.domain.status import COMPLETED, ERROR, Outcome, RunEvent, after
from leasehold.domain.stored import make, replace
from leasehold.domain.trace import TraceType, event_of
from leasehold.domain.trials import (
    TrialsEnd,
    ends_trials,
    is_reviewed,
    opening_words,
    trial_at,
    with_best_trial,
    with_trial_filed,
)

_NOW: Final = timedelta()
#: So many folders of items that are over are noted to be deleted; the rest goes with the run.
_MAX_FOLDERS_OWED: Final = 4


def hand_off(draft: Draft, event: RunEvent) -> Change:
    """Move on from what is at hand, whose output is kept."""
    if draft.before.lane is not None:
        return next_item(draft, event, draft.before.lane)
    if draft.before.trials is not None and is_reviewed(draft.run):
        end = ends_trials(draft.run)
        if end is None:
            return _next_trial(draft)
        _choose_trial(draft, end)
    following = draft.rest.step_after(draft.step)
    if following is None:
        return _complete(draft, RunEvent.LAST_STEP_DONE)
    return _next_step(draft, event, following)


def next_item(
    draft: Draft, event: RunEvent, lane: Lane, *, failed: ErrorRecord | None = None
) -> Change:
    """Record what became of the items at hand, and go on to the next ones, or end the lane.

    The record is a document beside the parent, written by the same commit: so it is written once,
    and the lane's own document stays small.

    Args:
        draft: the change so far; the record of the step has the output.
        event: what happened.
        lane: what it had to do.
        failed: why there is no output; None: there is one.
    """
    item = _item(draft, lane, failed)
    after_them = lane.without_unit(failed=failed is not None)
    draft.run = replace(draft.run, lane=after_them, owed=draft.run.owed[-_MAX_FOLDERS_OWED:])
    draft.step = replace(draft.step.to_run_again(), progress=None)
    if after_them.ahead:
        _go_to(draft, event, draft.position.step, trial=after_them.ahead[0] + 1)
        change = dispatch_next(draft, Outcome.HANDED_OFF)
    else:
        change = _complete(draft, RunEvent.LAST_ITEM_LEFT if failed else RunEvent.LAST_STEP_DONE)
    return change._replace(item=item)


def _item(draft: Draft, lane: Lane, failed: ErrorRecord | None) -> ItemRecord:
    first, end = lane.unit
    made, error = draft.step, None
    if failed is not None:
        error = ItemError(type=failed.type, code=failed.code, message=failed.message)
    return ItemRecord(
        first=first,
        count=end - first,
        text=None if failed else made.output,
        ref=None if failed else made.output_ref,
        output_status=None if failed else made.output_status,
        error=error,
        is_batch=lane.batch > 1,
        lane=draft.before.run_id,
        attempts=draft.position.attempt,
        at=draft.now,
    )


def _next_trial(draft: Draft) -> Change:
    """Begin another trial: its author is dispatched."""
    author, *_ = draft.run.looped_steps
    why = opening_words(draft.run)
    draft.run = replace(draft.run, steps=with_trial_filed(draft.run))
    _go_to(draft, RunEvent.TRIAL_OPENED, author)
    draft.trace_next(TraceType.AUTHOR_SLOT_OPENED, detail=why)
    return dispatch_next(draft, Outcome.HANDED_OFF)


def _choose_trial(draft: Draft, end: TrialsEnd) -> None:
    """End the trials: the best of them has its place in the records of the steps by then."""
    run = draft.run
    if end is TrialsEnd.REFUSED:
        author = run.looped_steps[0]
        status = run.steps[author].output_status
        detail = f"The output of step {author} is {status}: no further trial begins."
        draft.trace(TraceType.AUTHOR_SLOT_REFUSED, reason=end.value, detail=detail)
    steps, best = with_best_trial(run)
    draft.run = replace(run, steps=steps)
    before, verdict = draft.before, best.verdict
    assert before.trials is not None  # noqa: S101 - it had trials
    assert verdict is not None  # noqa: S101 - by which it was chosen
    made = trial_at(before, before.position.step)
    chosen = event_of(
        replace(before, position=replace(before.position, trial=best.trial)),
        TraceType.TRIAL_CHOSEN,
        draft.now,
        reason=end.value,
        detail=f"score {verdict.score:g}, after {made} of {before.trials.max_trials} trials",
        score=verdict.score,
    )
    draft.events += (chosen,)


def _next_step(draft: Draft, event: RunEvent, following: str) -> Change:
    """Go on to a later step, and leave out those between, if its output says so.

    They are taken out of the plan: so it is the next one, for all who read it. A version that knows
    nothing of skips gives each step the output of the one before it in the plan.
    """
    step, record = draft.position.step, draft.step
    draft.step = replace(record, status=COMPLETED, handed_off_at=draft.now)
    if record.skip_to is not None:
        run = draft.run
        place, to = run.plan.index(step) + 1, run.plan.index(following)
        left_out = tuple([make(SkippedStep, step=name, by=step) for name in run.plan[place:to]])
        if left_out:
            plan = run.plan[:place] + run.plan[to:]
            draft.run = replace(run, plan=plan, skipped=(run.skipped or ()) + left_out)
    _go_to(draft, event, following)
    return dispatch_next(draft, Outcome.HANDED_OFF)


def _complete(draft: Draft, event: RunEvent) -> Change:
    """Complete the run."""
    draft.step = replace(draft.step, status=COMPLETED)
    at = draft.position
    draft.run = replace(
        draft.rest,
        status=after(draft.rest.status, event),
        position=replace(
            at, lease=None, checkpoint=None, calls=at.calls and outlasting(at.calls), note=None
        ),
        steps=draft.steps,
        error=None,
        error_at=None,
        block=None,
        paused=False,
        completed_at=draft.now,
    )
    return draft.commit(Outcome.COMPLETED)


def _go_to(draft: Draft, event: RunEvent, step: str, trial: int | None = None) -> None:
    """Leave the current step, trial or item for another one, which has had no attempt yet."""
    run, before, dispatch = draft.rest, draft.position, draft.position.dispatch
    if dispatch.after_block is not None:
        dispatch = replace(dispatch, after_block=None)
    position = make(
        Position,
        step=step,
        trial=trial or (1 if run.trials is None else trial_at(draft.run, step)),
        dispatch=dispatch,
        calls=before.calls and outlasting(before.calls),
        last_settlement=before.last_settlement,
    )
    signals = run.signals and without_values_of(run.signals, place_of(before.step, before.trial))
    draft.run = replace(
        run,
        status=after(run.status, event),
        position=position,
        steps=draft.steps,
        signals=signals,
        error=None,
        error_at=None,
        block=None,
    )
    if run.places is not None:
        begin_wait(draft)


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

    A paused run stays where it is. One that waits for a signal is blocked until that is there, and
    so is one that may have made a call already, or has used up its budget. A step that this deploy
    does not know is left to those who do.

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
        if draft.before.block is not None:  # it keeps its own generation
            dispatch = run.position.dispatch.under_next_generation
            draft.position = replace(draft.position, dispatch=dispatch)
        return draft.commit(outcome)
    at = run.position
    if at.wait is not None or run.places is not None:
        if (waits := _at_wait(draft)) is not None:
            return waits
        run = draft.run
    if (waited := draft.position.slot_wait) is not None and not waited.called:
        draft.position = replace(draft.position, slot_wait=replace(waited, called=True))
    dispatch = _next_dispatch(draft, run, draft.now + wait)
    if at.unconfirmed_call is not None:
        return stop_for_call(draft, dispatch, at.unconfirmed_call)
    has_budget = run.budget is not None or dispatch.budget is not None
    if has_budget and not run.has_unjudged_output and (used_up := run.used_up(dispatch.budget)):
        return stop_over_budget(draft, dispatch, used_up)
    if redispatched or lost_since or deferred:
        dispatch = replace(
            dispatch, redispatched=redispatched, lost_since=lost_since, deferred=deferred
        )
    return draft.commit(outcome, dispatch=dispatch)


def _at_wait(draft: Draft) -> Change | None:
    """Stop where the run waits, or go on with the signal; None: the step has it, or waits for none.

    Its sender writes the same document: it is seen here, or its sender finds the wait.
    """
    if draft.run.has_wait_to_begin:
        begin_wait(draft)
    run, at = draft.run, draft.position
    if at.wait is None:
        return None
    found = signal_for(run.signals, at.wait.name, place_of(at.step, at.trial))
    if found is None:
        return stop_for_signal(draft, _next_dispatch(draft, run, draft.now), at.wait)
    _take(draft, found)
    return None if run.wait_rule_at(at.step) is None else _pass_on(draft, found)


def _take(draft: Draft, found: Signal) -> None:
    """Give the place at hand the signal that it waits for: its wait is over."""
    at = draft.position
    signals = with_taken(draft.run.signals or (), found.name, place_of(at.step, at.trial))
    draft.run = replace(draft.run, signals=signals)
    draft.position = replace(draft.position, wait=None)
    draft.count_anew()


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


def _next_dispatch(draft: Draft, run: Manifest, not_before: datetime) -> Dispatch:
    """Return the dispatch of the current step, under the next generation.

    A block is looked at as long as nothing is known to have become of it: a failure says that the
    handler was called; with an output that is kept, only its gates were.
    """
    at = draft.position
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
    is_unjudged, block = run.has_unjudged_output, at.dispatch.after_block
    is_elsewhere = (at.dispatch.step, at.dispatch.trial) != (at.step, at.trial)
    if is_elsewhere or (run.status is ERROR and not is_unjudged):
        block = None
    if is_unjudged:
        return dispatch.to_be_judged(block)
    return dispatch if block is None else replace(dispatch, after_block=block)
