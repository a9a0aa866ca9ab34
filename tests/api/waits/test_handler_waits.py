"""`ctx.wait_for`: a handler waits for a signal, and no attempt runs meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.errors import (
    InvalidRequestError,
    InvalidSignalError,
    SignalIdReusedError,
    SignalNotAwaitedError,
    UnknownSignalError,
)
from leasehold.services.explain_run import explain_run
from leasehold.testing import FrozenClock, InProcessEngine
from tests.api.waits import approvals

YES = {"approved": True, "by": "ada"}


def _waiting(engine: InProcessEngine, pipeline: str = "approved", **given: object) -> Manifest:
    run = engine.start(pipeline, given)
    engine.run_until_idle()
    return engine.show(run.run_id)


def _done(engine: InProcessEngine, run: Manifest) -> Manifest:
    engine.run_until_idle()
    return engine.show(run.run_id)


def test_a_step_waits_for_a_signal_and_goes_on_with_it(engine: InProcessEngine) -> None:
    waiting = _waiting(engine)

    sent = engine.signal(waiting.run_id, "approval", YES)

    assert (waiting.status, waiting.block and waiting.block.code) == (RunStatus.BLOCKED, "waiting")
    assert waiting.position.lease is None
    assert waiting.alarm_at is None
    assert sent.outcome == "signalled"
    assert _done(engine, waiting).status is RunStatus.COMPLETED
    assert engine.output(waiting.run_id) == {"published": YES}
    assert len(approvals.ASKED) == 1


def test_the_event_before_the_wait_is_not_lost(engine: InProcessEngine) -> None:
    """The famous failure: the answer is there before a step waits for it."""
    run = engine.start("approved", {})

    sent = engine.signal(run.run_id, "approval", YES)

    assert sent.outcome == "signal_kept"
    done = _done(engine, run)
    assert done.status is RunStatus.COMPLETED
    assert engine.output(run.run_id) == {"published": YES}
    assert done.steps["ask"].attempts.ended == 0


def test_the_same_id_counts_once(engine: InProcessEngine) -> None:
    run = engine.start("told", {})
    first = engine.signal(run.run_id, "first", "a", id="n-1")
    again = engine.signal(run.run_id, "first", "a", id="n-1")

    with pytest.raises(SignalIdReusedError):
        engine.signal(run.run_id, "first", "b", id="n-1")

    assert (first.outcome, again.outcome) == ("signal_kept", "signal_known")
    assert len(engine.show(run.run_id).signals or ()) == 1


def test_a_known_id_is_answered_also_once_the_run_is_over(engine: InProcessEngine) -> None:
    run = _waiting(engine)
    engine.signal(run.run_id, "approval", YES, id="n-1")
    _done(engine, run)

    assert engine.signal(run.run_id, "approval", YES, id="n-1").outcome == "signal_known"


def test_several_signals_are_waited_for_one_after_the_other(engine: InProcessEngine) -> None:
    run = _waiting(engine, "told")
    engine.signal(run.run_id, "second", {"n": 2})
    engine.run_until_idle()
    still = engine.show(run.run_id)
    engine.signal(run.run_id, "first", "one")
    done = _done(engine, run)

    assert still.status is RunStatus.BLOCKED
    assert engine.output(run.run_id) == ["one", {"n": 2}, {}]
    assert done.steps["ask_in_a_loop"].attempts.continued == 1


def test_a_run_that_was_sent_all_that_it_keeps_still_takes_what_it_waits_for(
    engine: InProcessEngine,
) -> None:
    """A sender that is not asked yet, and sends again and again, would stop the run for good."""
    run = _waiting(engine, "told")
    for number in range(100):
        engine.signal(run.run_id, "second", number)
    with pytest.raises(SignalNotAwaitedError, match="keeps 100 signals"):
        engine.signal(run.run_id, "second", 100)

    sent = engine.signal(run.run_id, "first", "one")

    assert sent.outcome == "signalled"
    assert _done(engine, run).status is RunStatus.COMPLETED
    assert engine.output(run.run_id) == ["one", 0, {}]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("aproval", UnknownSignalError), ("../x", InvalidRequestError), ("", InvalidRequestError)],
)
def test_a_name_that_nothing_waits_for_is_refused(
    engine: InProcessEngine, name: str, problem: type[Exception]
) -> None:
    run = _waiting(engine)

    with pytest.raises(problem) as refused:
        engine.signal(run.run_id, name, YES)

    assert engine.show(run.run_id) == run
    if problem is UnknownSignalError:
        assert "known: approval, first, go, second." in str(refused.value)


def test_a_value_that_does_not_fit_is_refused(engine: InProcessEngine) -> None:
    run = _waiting(engine)

    with pytest.raises(InvalidSignalError, match="approved"):
        engine.signal(run.run_id, "approval", {"approved": "perhaps"})

    assert engine.show(run.run_id) == run


def test_an_early_value_that_does_not_fit_is_dropped_and_the_step_waits_on(
    engine: InProcessEngine,
) -> None:
    """The model was not known when it came: it is said in the run, and nothing is given up."""
    run = engine.start("approved", {})
    engine.signal(run.run_id, "approval", {"approved": "perhaps"})
    waiting = _done(engine, run)

    engine.signal(run.run_id, "approval", YES)

    assert waiting.status is RunStatus.BLOCKED
    assert waiting.block is not None
    assert "One was refused" in waiting.block.finding
    assert "signal_refused" in [event.type for event in engine.trace(run.run_id)]
    assert _done(engine, run).status is RunStatus.COMPLETED


def test_a_run_that_is_over_takes_no_signal(engine: InProcessEngine) -> None:
    run = _waiting(engine)
    engine.cancel(run.run_id, reason="enough")

    with pytest.raises(SignalNotAwaitedError, match="waits for nothing any more: it is cancelled"):
        engine.signal(run.run_id, "approval", YES)


def test_why_says_for_what_since_when_until_when_and_what_then(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run = _waiting(engine, wait_s=3600, otherwise="continue")

    words = explain_run(engine.engine, run.run_id, is_gone=lambda _: False).explanation.words

    until = (clock.now() + timedelta(hours=1)).isoformat(timespec="seconds")[:19]
    assert "waits for the signal 'approval'" in words
    assert f"until {until}Z" in words
    assert "the run goes on without it" in words
    assert f"leasehold signal {run.run_id} approval" in words


def test_a_wait_goes_on_without_a_signal_at_its_end(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run = _waiting(engine, wait_s=60, otherwise="continue")
    clock.advance(61)
    engine.sweep()

    assert _done(engine, run).status is RunStatus.COMPLETED
    assert engine.output(run.run_id) == {"published": None}


def test_a_wait_that_fails_gives_the_run_up(engine: InProcessEngine, clock: FrozenClock) -> None:
    run = _waiting(engine, wait_s=60, otherwise="fail")
    clock.advance(61)
    engine.sweep()

    done = _done(engine, run)
    assert done.dead_lettered
    assert done.error is not None
    assert (done.error.type, done.error.code) == ("WaitTimedOutError", "wait_timed_out")


def test_a_handler_may_go_on_after_a_wait_that_fails(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run = _waiting(engine, "decided")
    clock.advance(61)
    engine.sweep()

    assert _done(engine, run).status is RunStatus.COMPLETED
    assert engine.output(run.run_id) == {"approved": False, "by": "the handler"}


def test_a_wait_that_blocks_is_left_to_a_person_and_takes_a_late_signal(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run = _waiting(engine, wait_s=60)
    clock.advance(61)
    engine.sweep()
    late = engine.show(run.run_id)
    engine.signal(run.run_id, "approval", YES)

    assert (late.status, late.alarm_at) == (RunStatus.BLOCKED, None)
    assert late.block is not None
    assert "its time was over" in late.block.finding
    assert late.position.dispatch.generation > run.position.dispatch.generation
    assert _done(engine, run).status is RunStatus.COMPLETED


def test_a_signal_that_comes_in_a_pause_counts_once_the_run_is_resumed(
    engine: InProcessEngine,
) -> None:
    run = _waiting(engine)
    engine.pause(run.run_id)
    sent = engine.signal(run.run_id, "approval", YES)
    engine.run_until_idle()
    paused = engine.show(run.run_id)
    engine.resume(run.run_id)

    assert sent.run.paused
    assert paused.status is RunStatus.PENDING
    assert _done(engine, run).status is RunStatus.COMPLETED


def test_a_wait_ends_no_pause(engine: InProcessEngine, clock: FrozenClock) -> None:
    run = _waiting(engine, wait_s=60, otherwise="continue")
    engine.pause(run.run_id)
    clock.advance(120)
    engine.sweep()
    paused = engine.show(run.run_id)
    engine.resume(run.run_id)
    resumed = engine.show(run.run_id)
    engine.sweep()

    assert (paused.alarm_at, paused.status) == (None, RunStatus.BLOCKED)
    assert resumed.alarm_at is not None
    assert _done(engine, run).status is RunStatus.COMPLETED


def test_a_retry_has_the_handler_run_again_and_the_wait_begin_anew(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run = _waiting(engine, wait_s=60)
    clock.advance(30)
    engine.retry(run.run_id, reason="look again")
    again = _done(engine, run)

    assert again.status is RunStatus.BLOCKED
    assert again.wait_until is not None
    assert run.wait_until is not None
    assert again.wait_until - run.wait_until == timedelta(seconds=30)
    assert len(approvals.ASKED) == 1


def test_a_retry_of_a_failed_step_is_given_the_same_signal(engine: InProcessEngine) -> None:
    approvals.FAILS.append("once")
    run = engine.start("fragile", {})
    engine.signal(run.run_id, "go", 1, id="first")
    engine.signal(run.run_id, "go", 2, id="second")
    engine.run_until_settled(run.run_id)

    assert engine.output(run.run_id) == 1


def test_a_recreated_run_keeps_what_was_sent(engine: InProcessEngine) -> None:
    run = _waiting(engine, "told")
    engine.signal(run.run_id, "first", "one")
    _done(engine, run)
    engine.cancel(run.run_id)

    new = engine.recreate(run.run_id)
    engine.signal(new.run_id, "second", "two")
    engine.run_until_idle()

    assert engine.output(new.run_id) == ["one", "two", {}]


def test_a_run_recreated_with_another_input_keeps_no_signal(engine: InProcessEngine) -> None:
    run = _waiting(engine, "told")
    engine.signal(run.run_id, "first", "one")
    engine.cancel(run.run_id)

    new = engine.recreate(run.run_id, input={"other": True})

    assert new.signals is None


def test_a_large_value_lies_beside_the_run(engine: InProcessEngine) -> None:
    run = _waiting(engine, "told")
    engine.signal(run.run_id, "second", "x" * 50_000)
    engine.signal(run.run_id, "first", "one")

    (kept, _) = engine.show(run.run_id).signals or ()
    assert (kept.inline, bool(kept.ref)) == (None, True)
    _done(engine, run)
    assert engine.output(run.run_id) == ["one", "x" * 50_000, {}]
