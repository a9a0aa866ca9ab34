"""How a run stops: blocked before its next attempt, without a lease and without a task.

A person's decision has it go on, or a signal, or the time of a block that heals.
"""

from __future__ import annotations

from typing import Final

from leasehold.domain.change import Change, Draft
from leasehold.domain.checkpoint import CALL_UNCONFIRMED, UnconfirmedCall
from leasehold.domain.manifest_parts import Block, Dispatch
from leasehold.domain.signal import WAITING, Wait
from leasehold.domain.spend import BUDGET_EXCEEDED, UsedUp
from leasehold.domain.status import Outcome, RunEvent, RunStatus, after
from leasehold.domain.stored import replace
from leasehold.domain.timestamps import stamp
from leasehold.domain.trace import TraceType

_SEND: Final = "Send it (`leasehold signal RUN {} --json VALUE`), or cancel the run."
_CONFIRM: Final = (
    "Find out. If it has, `leasehold approve RUN --output @FILE` with its result as JSON; if not, "
    "`leasehold retry RUN` makes it again; or cancel the run."
)
RAISE_BUDGET: Final = "Give it more (`leasehold resume RUN --budget usd=…`), or cancel it."


def stop(
    draft: Draft,
    block: Block,
    event: RunEvent,
    *,
    dispatch: Dispatch | None = None,
    traced: TraceType | None = None,
) -> Change:
    """Block a run.

    Args:
        draft: the change so far.
        block: why, and what can be done about it.
        event: what happens to the run.
        dispatch: of its next generation; None: the one at hand under it.
        traced: as an event of that generation; None: not.
    """
    dispatch = dispatch or draft.position.dispatch.under_next_generation
    draft.step = replace(draft.step, status=RunStatus.BLOCKED)
    draft.run = replace(draft.run, status=after(draft.run.status, event), block=block)
    draft.position = replace(
        draft.position, lease=None, dispatch=replace(dispatch, after_block=None)
    )
    if traced is not None:
        draft.trace_next(traced, **block.facts)
    return draft.commit(Outcome.BLOCKED)


def stop_for_signal(draft: Draft, dispatch: Dispatch, wait: Wait) -> Change:
    """Block a run until the signal comes that it waits for; it is not traced."""
    block = Block(code=WAITING, finding=wait_words(wait), remediation=_SEND.format(wait.name))
    return stop(draft, block, RunEvent.WAIT_BEGUN, dispatch=dispatch)


def stop_for_call(draft: Draft, dispatch: Dispatch, call: UnconfirmedCall) -> Change:
    """Block a run that may have made a call which must not be made twice: a person decides."""
    finding = (
        f"Attempt {call.attempt} ended between the call {call.key!r} and its record, so it may "
        f"have happened. It was called with: {call.arguments or 'nothing'}."
    )
    block = Block(code=CALL_UNCONFIRMED, finding=finding, remediation=_CONFIRM)
    event, traced = RunEvent.CALL_UNCONFIRMED, TraceType.CALL_UNCONFIRMED
    return stop(draft, block, event, dispatch=dispatch, traced=traced)


def stop_over_budget(draft: Draft, dispatch: Dispatch, used_up: UsedUp) -> Change:
    """Block a run whose next attempt would spend more than it may: a person decides."""
    more = used_up.limit.more_for(used_up.spend)
    block = Block(
        code=BUDGET_EXCEEDED,
        finding=used_up.finding,
        remediation=f"Give it more, such as `leasehold resume RUN --budget {more}`, or cancel it.",
    )
    event, traced = RunEvent.BUDGET_EXCEEDED, TraceType.BUDGET_EXCEEDED
    return stop(draft, block, event, dispatch=dispatch, traced=traced)


def wait_words(wait: Wait) -> str:
    """Say what is waited for, since when, until when and what then."""
    why = f" One was refused: {wait.refused}" if wait.refused else ""
    what = f"It waits for the signal {wait.name!r} since {stamp(wait.since)}"
    if wait.until is None:
        return f"{what}, for any time.{why}"
    if wait.is_over:
        return f"{what}; its time was over at {stamp(wait.until)}.{why}"
    return f"{what}, until {stamp(wait.until)}; then {wait.then}.{why}"
