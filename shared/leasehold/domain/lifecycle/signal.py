"""Waits for signals: a step begins one, a signal ends it, or the end of its time does.

Sender and waiter write the same document, so the later one of both sees the other.
While a run waits it has no lease and no task; its alarm is the end of the wait, if it has one.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from leasehold.domain.change import Change, Draft, unchanged
from leasehold.domain.dispatch import Rules
from leasehold.domain.give_up_rules import Verdict
from leasehold.domain.lease import Fence, held_lease
from leasehold.domain.lifecycle.handoff import dispatch_next
from leasehold.domain.lifecycle.settle import end_attempt, first_answer
from leasehold.domain.lifecycle.stop import wait_words
from leasehold.domain.lifecycle.termination import dead_letter, note_error
from leasehold.domain.manifest import Manifest, fits_inline
from leasehold.domain.manifest_parts import Block, ErrorRecord
from leasehold.domain.notes import NO_NOTES, Notes
from leasehold.domain.result import SignalRequest
from leasehold.domain.signal import (
    MAX_SIGNALS,
    WAITING,
    Otherwise,
    Signal,
    Wait,
    bounded,
    place_of,
    signal_for,
    with_missed,
)
from leasehold.domain.status import AttemptEnd, DeadLetterReason, Outcome, RunEvent, after
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType
from leasehold.errors import (
    SignalIdReusedError,
    SignalNotAwaitedError,
    TooLargeError,
    UnknownSignalError,
    WaitTimedOutError,
)

_LATE: str = "Send it (`leasehold signal RUN {} --json VALUE`), retry or cancel the run."


def wait_for(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    fence: Fence,
    wanted: SignalRequest,
    notes: Notes = NO_NOTES,
) -> Change:
    """End an attempt whose handler waits for a signal; the next one is given it.

    It uses up no retry. Where the signal has come meanwhile, the next attempt is due at once.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        fence: the credentials of the worker.
        wanted: the signal; and why the one that was there does not count, if so.
        notes: what is kept with it.

    Raises:
        LeaseLostError: the lease is not the one that is held.
    """
    if first := first_answer(manifest, fence):
        return first
    lease = held_lease(manifest, now, fence)
    draft = Draft(manifest, now, rules, fence)
    draft.note(notes)
    if wanted.refused:
        _drop(draft, wanted)
    timeout = None if wanted.timeout_s is None else timedelta(seconds=wanted.timeout_s)
    wait = Wait(
        name=wanted.name,
        since=now,
        until=None if timeout is None else now + timeout,
        otherwise=wanted.otherwise,
        model=wanted.model or None,
        refused=wanted.refused or None,
    )
    draft.trace(TraceType.STEP_CONTINUED, detail=wait_words(wait), holder=lease.holder)
    draft.position = replace(draft.position, wait=wait)
    return end_attempt(draft, AttemptEnd.CONTINUED, Outcome.CONTINUED)


def _drop(draft: Draft, wanted: SignalRequest) -> None:
    """Drop the signal that a handler cannot use; the wait goes on for another one."""
    at = draft.position
    signals = draft.run.signals or ()
    found = signal_for(signals, wanted.name, place_of(at.step, at.trial))
    if found is None or found.is_missed:
        return
    draft.trace(
        TraceType.SIGNAL_REFUSED, reason=found.name, detail=wanted.refused, signal_id=found.id
    )
    done = replace(found, taken_by="", inline=None, ref=None)
    draft.run = replace(draft.run, signals=tuple(done if one is found else one for one in signals))


def signal(
    manifest: Manifest,
    now: datetime,
    *,
    rules: Rules,
    sent: Signal,
    actor: str,
    known: Collection[str] | None,
) -> Change:
    """Keep a signal, and have the run go on if it waits for that.

    Args:
        manifest: the run.
        now: the store's time.
        rules: the rules in force.
        sent: the signal.
        actor: who sends it.
        known: the names that the run may yet wait for, beside those of its own document; None: any.

    Raises:
        SignalIdReusedError: its id came before, with another name or value.
        SignalNotAwaitedError: the run is over, or nothing can wait for it any more.
        UnknownSignalError: nothing of the run waits for a signal of that name.
        TooLargeError: the run has no room for the text; it is to be stored as an artifact.
    """
    signals, wait = manifest.signals or (), manifest.waits_for
    for one in signals:
        if one.id == sent.id and not one.is_missed:
            if (one.name, one.digest) != (sent.name, sent.digest):
                raise SignalIdReusedError(run_id=manifest.run_id, id=sent.id, name=one.name)
            return unchanged(manifest, Outcome.SIGNAL_KNOWN)
    _check_awaited(manifest, sent, known)
    if sent.inline is not None and not fits_inline(sent.size, beside=manifest.text_bytes):
        raise TooLargeError(what="the signal", size=sent.size, limit=0)
    kept = bounded((*signals, replace(sent, at=now)))
    is_awaited = wait is not None and wait.name == sent.name  # others may not keep the run from it
    if len(kept) > MAX_SIGNALS and not is_awaited:
        problem = f"it keeps {MAX_SIGNALS} signals already, which nothing has waited for"
        raise _not_awaited(manifest, sent, problem)
    draft = Draft(manifest, now, rules)
    draft.trace(TraceType.SIGNAL_RECEIVED, reason=sent.name, actor=actor, signal_id=sent.id)
    draft.run = replace(draft.run, signals=kept)
    if not is_awaited:
        return draft.commit(Outcome.SIGNAL_KEPT)
    return _go_on(draft, Outcome.SIGNALLED)


def _go_on(draft: Draft, outcome: Outcome) -> Change:
    """Have a run go on whose wait is over."""
    status = after(draft.run.status, RunEvent.WAIT_OVER)
    draft.step = replace(draft.step, status=status)
    draft.run = replace(draft.run, status=status, block=None)
    return dispatch_next(draft, outcome)


def _check_awaited(manifest: Manifest, sent: Signal, known: Collection[str] | None) -> None:
    if manifest.is_terminal:
        raise _not_awaited(manifest, sent, f"it waits for nothing any more: it is {manifest.state}")
    ahead, wait = manifest.signals_ahead, manifest.position.wait
    is_passed = sent.name in manifest.plan and sent.name not in ahead
    if is_passed and manifest.wait_rule_at(sent.name) is not None:
        now_at = f"it is {manifest.state} at step {manifest.position.step}"
        waits = f"waits for the signal {wait.name!r}" if wait else "waits for no signal"
        raise _not_awaited(manifest, sent, f"it went on from there; {now_at} and {waits}")
    own = ahead | {one.name for one in manifest.signals or ()} | ({wait.name} if wait else set())
    if known is not None and sent.name not in own and sent.name not in known:
        names = ", ".join(sorted(own | {*known})) or "none"
        raise UnknownSignalError(run_id=manifest.run_id, name=sent.name, known=names)


def _not_awaited(manifest: Manifest, sent: Signal, problem: str) -> SignalNotAwaitedError:
    return SignalNotAwaitedError(run_id=manifest.run_id, name=sent.name, problem=problem)


def time_out(manifest: Manifest, now: datetime, *, rules: Rules) -> Change:
    """End a wait whose time is over, as its step or place in the plan says."""
    wait = manifest.waits_for
    assert wait is not None  # noqa: S101 - the alarm is for its end
    draft = Draft(manifest, now, rules)
    draft.trace(TraceType.WAIT_TIMED_OUT, reason=wait.name, detail=wait_words(wait))
    if wait.otherwise not in (Otherwise.CONTINUE.value, Otherwise.FAIL.value):
        return _leave_to_person(draft, replace(wait, is_over=True))
    is_place = manifest.wait_rule_at(draft.position.step) is not None
    if is_place and wait.otherwise == Otherwise.FAIL.value:
        return _give_up(draft, wait)
    taker = place_of(draft.position.step, draft.position.trial)
    draft.run = replace(draft.run, signals=with_missed(manifest.signals, wait.name, taker, now))
    return _go_on(draft, Outcome.WAIT_TIMED_OUT)


def _give_up(draft: Draft, wait: Wait) -> Change:
    """Give a run up whose plan says that it fails without the signal."""
    error = WaitTimedOutError(wait.name)
    note_error(draft, ErrorRecord(type=type(error).__name__, code=error.code, message=str(error)))
    detail = f"{type(error).__name__}: {error}"
    return dead_letter(draft, Verdict(DeadLetterReason.PERMANENT_FAILURE, detail))


def _leave_to_person(draft: Draft, wait: Wait) -> Change:
    """Keep a run blocked whose wait is over, under its own generation: it is announced."""
    block = Block(code=WAITING, finding=wait_words(wait), remediation=_LATE.format(wait.name))
    draft.run = replace(draft.run, block=block)
    draft.position = replace(
        draft.position, wait=wait, dispatch=draft.position.dispatch.under_next_generation
    )
    return draft.commit(Outcome.WAIT_TIMED_OUT)
