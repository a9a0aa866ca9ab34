"""`Wait` as an entry of a pipeline: a place that hands the value of a signal on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry, TrialPolicy, Wait
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import Write, replace
from leasehold.errors import (
    ChainError,
    InvalidEntryError,
    InvalidSignalError,
    SignalNotAwaitedError,
    UnknownSignalError,
)
from leasehold.registry.pipelines import Catalog
from leasehold.services.adopt_runs import look_at_blocked
from leasehold.services.check_chain import check_chain
from leasehold.services.execute_step import Hint, execute_step
from leasehold.testing import FrozenClock, InProcessEngine
from leasehold.worker.handler.checks import ImportedHandlerChecks
from tests.worlds.builders import at_position, with_step

pytestmark = pytest.mark.catalog(__name__)


HOUR = timedelta(hours=1)


class Approval(BaseModel):
    approved: bool
    by: str = "someone"


def draft(_: StepContext, given: Any) -> Any:
    return {"draft": given}


def publish(ctx: StepContext, given: Approval | None) -> Any:
    text = ctx.output_of("draft")
    return {"text": text, "by": None if given is None else given.by}


def tell(_: StepContext, given: Any) -> Any:
    return {"told": given}


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


def _approved(name: str, otherwise: Any) -> PipelineEntry:
    wait = Wait("approval", model=Approval, timeout=HOUR, otherwise=otherwise)
    return PipelineEntry(name=name, steps=("draft", wait, "publish"))


STEPS = Registry("dispatch", [_entry("draft"), _entry("publish"), _entry("tell")])
PIPELINES = Registry(
    "pipelines",
    [
        _approved("blocking", "block"),
        _approved("continuing", "continue"),
        _approved("failing", "fail"),
        PipelineEntry(name="begins", steps=(Wait("go"), "tell")),
        PipelineEntry(name="ends", steps=("tell", Wait("receipt"))),
        PipelineEntry(name="twice", steps=("draft", Wait("first"), Wait("second"), "tell")),
    ],
)


YES = {"approved": True, "by": "ada"}


def begun(engine: InProcessEngine, pipeline: str) -> str:
    run_id = engine.start(pipeline, {"topic": "tea"}).run_id
    engine.run_until_idle()
    return run_id


def state(engine: InProcessEngine, run_id: str) -> Manifest:
    engine.run_until_idle()
    return engine.show(run_id)


def test_a_place_waits_and_hands_the_signal_on(engine: InProcessEngine, clock: FrozenClock) -> None:
    run_id = begun(engine, "blocking")
    waiting = engine.show(run_id)
    sent = engine.signal(run_id, "approval", YES)

    assert (waiting.position.step, waiting.status) == ("approval", RunStatus.BLOCKED)
    assert waiting.block is not None
    assert waiting.block.code == "waiting"
    assert waiting.alarm_at == clock.now() + timedelta(hours=1)
    assert (waiting.position.lease, waiting.position.dispatch.enqueued) == (None, False)
    assert sent.outcome == "signalled"
    assert state(engine, run_id).status is RunStatus.COMPLETED
    assert engine.output(run_id) == {"text": {"draft": {"topic": "tea"}}, "by": "ada"}
    assert engine.output(run_id, "approval") == YES


@pytest.mark.parametrize("is_known", [False, True])
def test_a_wait_that_an_older_version_came_to_is_begun(
    engine: InProcessEngine, is_known: bool
) -> None:
    """It knows of no waits: the step beside the place would run there, without the approval."""
    engine.faults.lose_task("draft")
    run_id = engine.start("blocking", {"topic": "tea"}).run_id
    run = engine.show(run_id)
    dispatch = replace(
        run.position.dispatch, step="approval", generation=2, provisional=not is_known
    )
    came = at_position(
        replace(run, steps=with_step(run, "draft", status="COMPLETED", output='{"draft":1}')),
        step="approval",
        dispatch=dispatch,
    )
    engine.engine.documents.transact(run_ref(run_id), lambda *_: Write(None, to_document(came)))

    execute_step(engine.engine, Hint(run_id, 2))

    waiting = engine.show(run_id)
    assert waiting.waits_for is not None
    assert (waiting.waits_for.name, waiting.steps["approval"].output) == ("approval", None)
    engine.signal(run_id, "approval", YES)
    assert state(engine, run_id).status is RunStatus.COMPLETED
    assert engine.output(run_id) == {"text": {"draft": 1}, "by": "ada"}


def test_a_wait_whose_alarm_an_older_version_took_ends_in_time(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    """It knows of no waits that end: a sweep of it would leave the run waiting."""
    run_id = begun(engine, "continuing")
    without = replace(engine.show(run_id), alarm_at=None)
    engine.engine.documents.transact(run_ref(run_id), lambda *_: Write(None, to_document(without)))

    look_at_blocked(engine.engine)

    assert engine.show(run_id).alarm_at == clock.now() + timedelta(hours=1)
    engine.advance(timedelta(hours=1))
    assert engine.run_until_settled(run_id).status is RunStatus.COMPLETED


def test_the_event_before_the_wait_is_not_lost(engine: InProcessEngine) -> None:
    """The famous failure: it is kept, and the place passes it on without a stop."""
    run_id = engine.start("blocking", {}).run_id
    sent = engine.signal(run_id, "approval", YES)
    done = state(engine, run_id)

    assert sent.outcome == "signal_kept"
    assert done.status is RunStatus.COMPLETED
    assert "wait_timed_out" not in [event.type for event in engine.trace(run_id)]


def test_a_place_hands_a_large_signal_on(engine: InProcessEngine) -> None:
    """Its value lies beside the run: the next step would be given nothing in place of it."""
    run_id = engine.start("ends", {}).run_id
    engine.signal(run_id, "receipt", "x" * 50_000)

    assert state(engine, run_id).status is RunStatus.COMPLETED
    assert engine.output(run_id) == "x" * 50_000


def test_a_pipeline_may_begin_with_a_wait(engine: InProcessEngine) -> None:
    run_id = engine.start("begins", {}).run_id
    waiting = engine.show(run_id)
    engine.signal(run_id, "go", "now")

    assert (waiting.status, waiting.position.step) == (RunStatus.BLOCKED, "go")
    assert state(engine, run_id).status is RunStatus.COMPLETED
    assert engine.output(run_id) == {"told": "now"}


def test_a_pipeline_may_end_with_a_wait(engine: InProcessEngine) -> None:
    run_id = begun(engine, "ends")
    engine.signal(run_id, "receipt", {"number": 7})

    assert state(engine, run_id).status is RunStatus.COMPLETED
    assert engine.output(run_id) == {"number": 7}


def test_two_waits_in_a_row_take_their_signals_in_any_order(engine: InProcessEngine) -> None:
    run_id = begun(engine, "twice")
    engine.signal(run_id, "second", 2)
    still = engine.show(run_id)
    engine.signal(run_id, "first", 1)

    assert still.position.step == "first"
    assert state(engine, run_id).status is RunStatus.COMPLETED
    assert engine.output(run_id) == {"told": 2}


def test_a_wait_continues_without_a_signal(engine: InProcessEngine, clock: FrozenClock) -> None:
    run_id = begun(engine, "continuing")
    clock.advance(3601)
    engine.sweep()

    assert state(engine, run_id).status is RunStatus.COMPLETED
    assert engine.output(run_id) == {"text": {"draft": {"topic": "tea"}}, "by": None}


def test_a_wait_fails_without_a_signal(engine: InProcessEngine, clock: FrozenClock) -> None:
    run_id = begun(engine, "failing")
    clock.advance(3601)
    engine.sweep()
    done = engine.show(run_id)

    assert done.dead_letter_reason == "PERMANENT_FAILURE"
    assert done.error is not None
    assert done.error.code == "wait_timed_out"


def test_a_wait_that_blocks_takes_a_late_signal(
    engine: InProcessEngine, clock: FrozenClock
) -> None:
    run_id = begun(engine, "blocking")
    clock.advance(3601)
    engine.sweep()
    late = engine.show(run_id)
    engine.signal(run_id, "approval", YES)

    assert (late.status, late.alarm_at) == (RunStatus.BLOCKED, None)
    assert state(engine, run_id).status is RunStatus.COMPLETED


def test_a_wait_of_months_needs_one_look(engine: InProcessEngine, clock: FrozenClock) -> None:
    """Longer than any task may be scheduled: it is an alarm of the store, and has no task."""
    run_id = begun(engine, "blocking")
    before = engine.show(run_id)
    clock.advance(3590)
    engine.sweep()

    assert engine.show(run_id) == before


def test_a_value_is_checked_before_and_while_it_is_waited_for(engine: InProcessEngine) -> None:
    run_id = engine.start("blocking", {}).run_id
    with pytest.raises(InvalidSignalError):
        engine.signal(run_id, "approval", {"approved": "perhaps"})
    engine.run_until_idle()
    with pytest.raises(InvalidSignalError):
        engine.signal(run_id, "approval", 7)

    assert engine.show(run_id).signals is None


def test_an_unknown_name_is_answered_with_the_known_ones(engine: InProcessEngine) -> None:
    run_id = begun(engine, "twice")

    with pytest.raises(UnknownSignalError, match=r"known: first, second\."):
        engine.signal(run_id, "third", 3)


def test_a_place_that_is_passed_takes_no_signal(engine: InProcessEngine) -> None:
    run_id = begun(engine, "twice")
    engine.signal(run_id, "first", 1)

    with pytest.raises(SignalNotAwaitedError, match="waits for the signal 'second'"):
        engine.signal(run_id, "first", 2)


def test_a_retry_of_a_wait_begins_it_anew(engine: InProcessEngine, clock: FrozenClock) -> None:
    run_id = begun(engine, "blocking")
    clock.advance(1800)
    again = engine.retry(run_id, reason="they are on holiday")

    assert again.status is RunStatus.BLOCKED
    assert again.wait_until == clock.now() + timedelta(hours=1)


def test_a_cancelled_wait_is_over(engine: InProcessEngine) -> None:
    run_id = begun(engine, "blocking")
    engine.cancel(run_id)

    with pytest.raises(SignalNotAwaitedError):
        engine.signal(run_id, "approval", YES)


def test_a_recreated_run_waits_where_the_old_one_did(engine: InProcessEngine) -> None:
    run_id = begun(engine, "twice")
    engine.signal(run_id, "second", 2)
    engine.cancel(run_id)

    new = engine.recreate(run_id)
    engine.signal(new.run_id, "first", 1)

    assert (new.status, new.position.step) == (RunStatus.BLOCKED, "first")
    assert state(engine, new.run_id).status is RunStatus.COMPLETED
    assert engine.output(new.run_id) == {"told": 2}


def test_a_paused_run_takes_its_signal_once_it_is_resumed(engine: InProcessEngine) -> None:
    run_id = begun(engine, "blocking")
    engine.pause(run_id)
    engine.signal(run_id, "approval", YES)
    paused = state(engine, run_id)
    engine.resume(run_id)

    assert paused.position.step == "approval"
    assert state(engine, run_id).status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (Wait("not a name"), "for the name of a Wait"),
        (Wait("a", model=7), "a class at the top of its module"),
        (Wait("a", timeout=timedelta(milliseconds=1)), "a timedelta from 1 s"),
        (Wait("a", timeout=60), "a timedelta from 1 s"),  # type: ignore[arg-type]
        (Wait("a", otherwise="explode"), "'block', 'continue', 'fail'"),  # type: ignore[arg-type]
        (Wait("a", otherwise="fail"), "'block' without a timeout"),
    ],
)
def test_a_wait_that_cannot_be_is_refused_in_one_line(wait: Wait, words: str) -> None:
    with pytest.raises(InvalidEntryError, match=words) as refused:
        PipelineEntry(name="p", steps=("draft", wait))

    assert "\n" not in refused.value.message


def test_a_pipeline_needs_a_step_beside_its_waits() -> None:
    with pytest.raises(InvalidEntryError, match="a step beside 'go'"):
        PipelineEntry(name="p", steps=(Wait("go"),))


def test_a_wait_is_no_author_and_no_reviewer() -> None:
    with pytest.raises(InvalidEntryError, match="a Wait neither writes nor reviews"):
        PipelineEntry(name="p", steps=("draft", Wait("go")), trials=TrialPolicy("draft", "go", 2))


def needs_a_number(_: StepContext, given: int) -> Any:
    return given


@pytest.mark.parametrize(
    "wait",
    [
        Wait("approval", model=Approval),
        Wait("approval", model=int, timeout=HOUR, otherwise="continue"),
    ],
)
def test_a_signal_that_the_next_step_cannot_take_is_refused_before_a_run(wait: Wait) -> None:
    entry = StepDispatchEntry(
        step_type="needs_a_number",
        handler=f"{__name__}:needs_a_number",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )
    pipeline = PipelineEntry(name="p", steps=("draft", wait, "needs_a_number"))
    steps = Registry("dispatch", [*STEPS, entry])
    catalog = Catalog(steps=steps, pipelines=Registry("pipelines", [pipeline]))

    with pytest.raises(ChainError):
        check_chain(catalog, ImportedHandlerChecks(), pipeline)
