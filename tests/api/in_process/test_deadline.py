"""A worker whose handler hangs past its dispatch deadline: the run goes on without its thread."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry, testing
from leasehold.domain.effect import dispatch_task
from leasehold.registry.pipelines import Catalog
from leasehold.testing import FrozenClock, InProcessEngine
from tests.worlds.catalogs.sample import CALLS, ENTERED, GO_ON, PIPELINES, STEPS
from tests.worlds.waiting import until

Hold = Callable[..., Any]


def test_the_next_attempt_waits_for_no_worker_that_hangs(
    environ: dict[str, str], clock: FrozenClock, holding: Hold
) -> None:
    """What its worker owes it publishes when it comes back: the retry is in the queue before."""
    with InProcessEngine(STEPS, PIPELINES, environ=environ, clock=clock, workers=2) as engine:
        run = holding(engine, "deaf")
        ENTERED[run.run_id].clear()
        for _ in range(12):
            clock.advance(10)
            engine.engine.leases.look()
        failed = engine.show(run.run_id)
        is_queued = engine.engine.tasks.exists(dispatch_task(failed))
        clock.advance(10)
        assert ENTERED[run.run_id].wait(60)  # of the second attempt, on the other worker
        GO_ON[run.run_id].set()
        done = engine.wait(run.run_id, 30)
        until(lambda: not engine.held_runs())
        events = engine.trace(run.run_id)

    assert (failed.status, failed.position.attempts.failed) == ("ERROR", 1)
    assert is_queued
    assert done.status == "COMPLETED"
    assert CALLS[run.run_id, "deaf"] == 2
    assert [event.reason for event in events if event.type == "step_terminated"] == [
        "dispatch_deadline_exceeded"
    ]


def test_a_step_that_sleeps_through_its_deadline_is_out_of_retries_in_a_users_test() -> None:
    """In the test's own thread, with time that the handler's wait moves."""
    with testing.engine(Catalog(SLEEPY, Registry("pipelines", [NAP]))) as engine:
        run = engine.start("nap", {})
        done = engine.run_until_settled(run.run_id)
        events = engine.trace(run.run_id)

    assert (done.dead_letter_reason, done.position.attempts.failed) == ("RETRIES_EXHAUSTED", 2)
    ends = [event for event in events if event.type == "step_terminated"]
    assert [(end.reason, end.attempt) for end in ends] == [
        ("dispatch_deadline_exceeded", 1),
        ("dispatch_deadline_exceeded", 2),
    ]
    assert "ctx.wait_or_shutdown(1000)" in (ends[0].stacks or "")


def sleep(ctx: StepContext, given: Any) -> Any:
    """Take longer than the step may."""
    ctx.wait_or_shutdown(1000)
    return {"late": True}


SLEEPY = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="sleep",
            handler=f"{__name__}:sleep",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            isolation="inline",
            max_retries=1,
        )
    ],
)
NAP = PipelineEntry(name="nap", steps=("sleep",))


def some_hours(ctx: StepContext, given: Any) -> Any:
    """Watch something for so many hours."""
    for _ in range(given["hours"]):
        ctx.wait_or_shutdown(3600)
    return {"attempt": ctx.attempt}


@pytest.mark.parametrize("hours", [5, pytest.param(6 * 24, marks=pytest.mark.nightly)])
def test_an_attempt_may_take_days_in_process(hours: int) -> None:
    """Five hours are ten times what a task of Cloud Tasks may take."""
    step = StepDispatchEntry(
        step_type="watch",
        handler="tests.api.in_process.test_deadline:some_hours",
        agent_timeout=timedelta(days=6, hours=12),
        dispatch_deadline=timedelta(days=7),
        heartbeat_interval=timedelta(minutes=5),
    )
    watching = PipelineEntry(name="watch", steps=("watch",))
    catalog = Catalog(Registry("dispatch", [step]), Registry("pipelines", [watching]))
    seldom = {"PIPELINE_LEASE_TTL_S": "900"}  # each renewal in these hours is a write
    with testing.engine(catalog, settings=seldom) as engine:
        begun = engine.clock.now()
        run = engine.run_until_settled(engine.start("watch", {"hours": hours}).run_id)

        assert engine.clock.now() - begun == timedelta(hours=hours)
        assert engine.output(run.run_id) == {"attempt": 1}
        assert run.position.attempts.ended == 0
