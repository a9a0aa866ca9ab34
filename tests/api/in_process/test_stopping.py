"""Handlers whose attempt should end: those that stop, and those that do nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import on_run
from leasehold.domain.manifest import run_ref
from leasehold.testing import InProcessEngine
from tests.worlds.catalogs.sample import CALLS, ENTERED, GO_ON
from tests.worlds.waiting import until

Make = Callable[..., InProcessEngine]
Hold = Callable[..., Any]
#: Who hears nobody is left behind after that long; a slow machine is not.
LONG_S = 60.0


def types_of(engine: InProcessEngine, run_id: str) -> list[str]:
    return [str(event.type) for event in engine.trace(run_id)]


@pytest.mark.parametrize("pipeline", ["counts", "counts_later"])
def test_a_handler_goes_on_from_its_checkpoint(
    threaded: Make, holding: Hold, pipeline: str
) -> None:
    """One that waits is woken at once, in a thread or in a coroutine."""
    with threaded() as engine:
        run = holding(engine, pipeline)
        engine.close(LONG_S)
        left_behind = engine.held_runs()
    GO_ON[run.run_id].set()

    with threaded() as engine:
        left = engine.show(run.run_id)
        engine.adopt(run.run_id)
        done = engine.wait(run.run_id, 30)
        story = types_of(engine, run.run_id)

    step = left.current_step
    assert left_behind == []
    assert (
        left.position.lease,
        left.position.attempts.interrupted,
        left.position.attempts.failed,
    ) == (None, 1, 0)
    assert left.position.checkpoint is not None
    assert (left.position.checkpoint.phase, left.position.checkpoint.iteration_count) == (
        "counting",
        1,
    )
    assert done.status == "COMPLETED"
    assert done.steps[step].output == '{"n":3,"counted":[1,2,3],"begun_at":1}'
    assert done.position.checkpoint is None
    assert story[:5] == [
        "run_started",
        "step_started",
        "step_terminated",
        "checkpoint_resumed",
        "step_completed",
    ]


def test_a_callback_ends_what_no_flag_reaches(threaded: Make, holding: Hold) -> None:
    with threaded() as engine:
        run = holding(engine, "closes")
        engine.close(LONG_S)
        left_behind = engine.held_runs()

    with threaded(workers=0) as engine:
        left = engine.show(run.run_id)

    assert left_behind == []
    assert not GO_ON[run.run_id].is_set()  # that callback was forgotten
    assert (
        left.position.lease,
        left.position.attempts.interrupted,
        left.position.attempts.failed,
    ) == (None, 1, 0)


def test_a_cancelled_run_stops_its_handler_and_says_so_once(threaded: Make, holding: Hold) -> None:
    with threaded(PIPELINE_LEASE_TTL_S="3", PIPELINE_HEARTBEAT_S="0.1") as engine:
        run = holding(engine, "counts")
        cancel = partial(lifecycle.cancel, rules=engine.engine.rules, actor="ann", reason="enough")
        engine.engine.documents.transact(run_ref(run.run_id), on_run(run.run_id, cancel))
        until(lambda: not engine.held_runs())
        events = engine.trace(run.run_id)
        done = engine.show(run.run_id)

    assert done.cancelled
    assert [event.reason for event in events if event.type == "step_terminated"] == ["cancelled"]
    assert "lease_lost" not in {event.type for event in events}


def test_an_engine_does_not_wait_for_a_handler_that_ignores_its_stop(
    threaded: Make, holding: Hold
) -> None:
    """Its lease is given back in time; what it still answers changes nothing."""
    engine = threaded()
    run = holding(engine, "deaf")
    ENTERED[run.run_id].clear()

    began = time.monotonic()
    engine.close(grace=0.3)
    took = time.monotonic() - began
    (left_behind,) = engine.held_runs()

    with threaded() as after:
        left = after.show(run.run_id)
        after.adopt(run.run_id)
        assert ENTERED[run.run_id].wait(60)
        second = after.show(run.run_id)
        GO_ON[run.run_id].set()
        done = after.wait(run.run_id, 30)
        until(lambda: not engine.held_runs())
        story = types_of(after, run.run_id)
    engine.close()

    assert took >= 0.3
    assert left_behind.manifest.run_id == run.run_id  # it is deaf for 30 s
    assert (left.status, left.position.lease) == ("PENDING", None)
    assert (left.position.attempts.interrupted, left.position.attempts.failed) == (1, 0)
    assert second.fencing_token == 2
    assert done.status == "COMPLETED"
    assert done.fencing_token == 2
    assert CALLS[run.run_id, "deaf"] == 2
    assert story == [
        "run_started",
        "step_started",
        "step_terminated",
        "step_completed",
        "run_completed",
    ]
