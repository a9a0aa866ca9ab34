"""How a run moves on: the next dispatch, or the next step, or the end of the plan."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from leasehold.domain.calls import outlasting
from leasehold.domain.change import Change
from leasehold.domain.dispatch import dispatch_of
from leasehold.domain.draft import Draft
from leasehold.domain.lifecycle.trial_end import end_trial, opening_words
from leasehold.domain.manifest_parts import Attempts, Block, Dispatch
from leasehold.domain.status import Outcome, RunEvent, RunStatus, after
from leasehold.domain.trace import TraceType
from leasehold.domain.trials import trial_at, with_trial_filed

_NOW: Final = timedelta()
_NONE_ENDED: Final = Attempts()


def dispatch_next(
    draft: Draft,
    outcome: Outcome,
    *,
    wait: timedelta = _NOW,
    redispatched: int = 0,
    deferred: int = 0,
) -> Change:
    """Dispatch the current step once more, as the next generation.

    A paused run stays where it is. A step that this deploy does not know blocks.

    Args:
        draft: the change so far.
        outcome: the answer for the caller.
        wait: how long the attempt waits.
        redispatched: how many tasks were lost before this one, without a lease in between.
        deferred: how many attempts in a row before this one met an outage.
    """
    run = draft.run
    if run.paused:
        if draft.before.block is not None:
            draft.set(dispatch=under_next_generation(run.dispatch))  # the block keeps its own
        return draft.commit(outcome)
    settings = draft.rules.settings_for(run.current_step)
    if settings is None:
        return block_unknown_step(draft)
    dispatch = dispatch_of(
        settings,
        generation=run.dispatch.generation + 1,
        trial=run.trial,
        not_before=draft.now + wait,
        nonce=run.dispatch.nonce,
        max_retries=run.max_retries,
    )
    if redispatched or deferred:
        dispatch = dispatch.with_(redispatched=redispatched, deferred=deferred)
    draft.set(dispatch=dispatch)
    return draft.commit(outcome)


def under_next_generation(dispatch: Dispatch) -> Dispatch:
    """Return the dispatch of a run that stops, under a generation of its own.

    A generation names one attempt or one block, and never two: a decision that names it cannot
    hit a block that nobody has looked at.
    """
    return dispatch.with_(generation=dispatch.generation + 1)


def block_unknown_step(draft: Draft) -> Change:
    """Block a run whose current step this deploy does not know."""
    run = draft.run
    block = Block(
        code="UNKNOWN_STEP",
        finding=f"This deploy knows no step {run.current_step!r}.",
        remediation="Deploy a catalog that has the step and retry the run, or cancel it.",
    )
    draft.trace_next(TraceType.STEP_UNKNOWN, reason=block.code, detail=block.finding)
    draft.set_step(status=RunStatus.BLOCKED)
    draft.set(
        status=after(run.status, RunEvent.STEP_UNKNOWN),
        lease=None,
        block=block,
        dispatch=under_next_generation(run.dispatch),
    )
    return draft.commit(Outcome.BLOCKED)


def hand_off(draft: Draft, event: RunEvent) -> Change:
    """Move on from the current step: to the next one, to another trial, or to the end."""
    if end_trial(draft):
        return _open_trial(draft)
    run, now = draft.run, draft.now
    following = run.next_step
    if following is None:
        draft.set(
            status=after(run.status, RunEvent.LAST_STEP_DONE),
            steps=run.with_step(run.current_step, status=RunStatus.COMPLETED),
            lease=None,
            error=None,
            error_at=None,
            block=None,
            checkpoint=None,
            calls=outlasting(run),
            paused=False,
            completed_at=now,
        )
        return draft.commit(Outcome.COMPLETED)
    draft.set_step(status=RunStatus.COMPLETED, handed_off_at=now)
    _go_to(draft, event, following)
    return dispatch_next(draft, Outcome.HANDED_OFF)


def _open_trial(draft: Draft) -> Change:
    """Begin another trial: its author is dispatched."""
    author, *_ = draft.run.looped_steps
    why = opening_words(draft.run)
    draft.set(steps=with_trial_filed(draft.run))
    _go_to(draft, RunEvent.TRIAL_OPENED, author)
    draft.trace_next(TraceType.AUTHOR_SLOT_OPENED, detail=why)
    return dispatch_next(draft, Outcome.HANDED_OFF)


def _go_to(draft: Draft, event: RunEvent, step: str) -> None:
    """Leave the current step for another one, which has had no attempt yet."""
    run = draft.run
    draft.set(
        status=after(run.status, event),
        lease=None,
        error=None,
        error_at=None,
        block=None,
        checkpoint=None,
        calls=outlasting(run),
        current_step=step,
        trial=trial_at(run, step),
        step_started_at=None,
        heartbeat_at=None,
        attempts=_NONE_ENDED,
    )
    draft.count_anew()
