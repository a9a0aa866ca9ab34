"""Parked runs continue in their engine, whichever process resumes them, also after a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from leasehold.domain.lifecycle import Operation
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Query
from leasehold.services.adopt_runs import take_up_dispatched
from leasehold.services.execute_step import Hint, arrive
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock, InProcessEngine
from tests.api.in_process.gated import GATES, PIPELINES, STEPS
from tests.worlds.catalogs.sample import GO_ON
from tests.worlds.waiting import until
from tests.worlds.wrapped import Wrapped

Environ = dict[str, str]


def engine_on(environ: Environ, clock: FrozenClock | None = None, workers: int = 0) -> Any:
    return InProcessEngine(STEPS, PIPELINES, GATES, environ=environ, clock=clock, workers=workers)


@pytest.fixture
def live(environ: Environ) -> Iterator[InProcessEngine]:
    """An engine that runs; a failed attempt is repeated after a quarter of an hour."""
    slow = {"PIPELINE_MIN_BACKOFF_S": "900", "PIPELINE_MAX_BACKOFF_S": "900"}
    with engine_on(environ | slow, workers=2) as engine:
        yield engine


@pytest.fixture
def command(environ: Environ) -> Callable[..., None]:
    """Runs `leasehold …` on the store of the engine, in its own process."""
    there = os.environ | environ | {"LEASEHOLD_CATALOG": "tests.api.in_process.gated"}

    def run(*words: str) -> None:
        words = (sys.executable, "-m", "leasehold", *words)
        subprocess.run(words, env=there, check=True, capture_output=True, timeout=30)

    return run


def types_of(engine: InProcessEngine, run_id: str) -> set[str]:
    return {str(event.type) for event in engine.trace(run_id)}


@pytest.mark.parametrize("action", ["approve", "retry"])
def test_a_blocked_run_that_another_process_lets_go_moves_here(
    live: InProcessEngine, command: Callable[..., None], action: str
) -> None:
    """Its queue is this engine; there is no wait for the grace, and no task counts as lost."""
    run = live.start("letters", {"n": 1})
    assert live.wait(run.run_id, 30).status == "BLOCKED"

    command(action, run.run_id)

    done = live.wait(run.run_id, 5)
    assert done.status == "COMPLETED"
    assert "step_redispatched" not in types_of(live, run.run_id)


def test_a_paused_run_that_another_process_resumes_moves_here(
    live: InProcessEngine, command: Callable[..., None], holding: Callable[..., Any]
) -> None:
    run = holding(live)
    command("pause", run.run_id)
    GO_ON[run.run_id].set()
    until(lambda: live.show(run.run_id).current_step == "send")
    assert live.wait(run.run_id, 5).paused

    command("resume", run.run_id)

    assert live.wait(run.run_id, 5).status == "COMPLETED"


def test_a_failed_run_that_another_process_retries_does_not_wait_for_its_backoff(
    live: InProcessEngine, command: Callable[..., None]
) -> None:
    run = live.start("recovers", {"n": 1})
    until(lambda: live.show(run.run_id).status == "ERROR")

    command("retry", run.run_id)

    until(lambda: live.show(run.run_id).position.attempts.failed == 2, 5)


def test_a_run_that_is_let_go_by_another_engine_is_dispatched_once(
    environ: Environ, clock: FrozenClock
) -> None:
    """The task of that very dispatch is created, and only here."""
    with engine_on(environ, clock) as engine, engine_on(environ, clock) as other:
        run = engine.start("letters", {"n": 1})
        engine.run_until_idle()
        operate(other.engine, run.run_id, OperationRequest(Operation.APPROVE, "ada"))
        clock.advance(1)
        ran = engine.run_until_idle()
        done = engine.show(run.run_id)

    assert (ran, done.status) == (1, "COMPLETED")
    assert (done.position.dispatch.generation, done.fencing_token) == (
        3,
        2,
    )  # the block has the second


def test_a_restart_takes_up_what_a_sweep_had_seen_in_the_queue(
    environ: Environ, clock: FrozenClock
) -> None:
    """That queue is gone: the loss of the task is known without waiting for the grace."""
    with engine_on(environ, clock) as before:
        run = before.start("holds", {"n": 1})
        clock.advance(61)
        sweep(before.engine)
        seen = before.show(run.run_id)

    with engine_on(environ, clock) as after:
        adopted = after.adopt_all()
        waiting = [task.run_id for task in iter(after.engine.tasks.take_due, None)]  # type: ignore[attr-defined]
        left = after.show(run.run_id)

    assert (seen.position.dispatch.enqueued, adopted, waiting) == (True, 1, [run.run_id])
    assert (left.position.dispatch.generation, left.position.dispatch.redispatched) == (1, 0)


def test_a_run_is_swept_at_its_alarm_itself(environ: Environ, clock: FrozenClock) -> None:
    with engine_on(environ, clock) as engine:
        run = engine.start("holds", {"n": 1})
        assert run.alarm_at is not None
        clock.advance((run.alarm_at - clock.now()).total_seconds() - 1)
        before = sweep(engine.engine).documents_read
        clock.advance(1)

        assert (before, sweep(engine.engine).documents_read) == (0, 1)


def test_a_dispatch_that_another_process_commits_a_little_late_is_taken_up(
    environ: Environ, clock: FrozenClock
) -> None:
    """It has the time at which it was decided, and the look came in between."""
    with engine_on(environ, clock) as engine, engine_on(environ, clock) as other:
        since = take_up_dispatched(engine.engine, since=clock.now())
        late = other.start("letters", {"n": 1})
        take_up_dispatched(engine.engine, since=since)
        taken = [task.run_id for task in iter(engine.engine.tasks.take_due, None)]  # type: ignore[attr-defined]

    assert taken == [late.run_id]


@pytest.mark.parametrize("held_by", ["a gate", "a pause"])
def test_a_run_that_was_parked_before_a_restart_goes_on_when_it_is_let_go(
    environ: Environ, clock: FrozenClock, held_by: str
) -> None:
    with engine_on(environ, clock) as before:
        run = before.start("letters", {"n": 1})
        if held_by == "a gate":
            before.run_until_idle()
        else:
            operate(before.engine, run.run_id, OperationRequest(Operation.PAUSE, "ada"))

    with engine_on(environ, clock) as after, engine_on(environ, clock) as other:
        assert after.adopt_all() == 0
        let_go = Operation.APPROVE if held_by == "a gate" else Operation.RESUME
        operate(other.engine, run.run_id, OperationRequest(let_go, "ada"))
        clock.advance(1)

        assert after.run_until_idle() > 0


def test_the_run_of_another_engine_is_left_to_it(environ: Environ, clock: FrozenClock) -> None:
    with engine_on(environ, clock) as engine, engine_on(environ, clock) as other:
        engine.start("letters", {"n": 1})
        other.start("letters", {"n": 2})
        clock.advance(1)

        assert engine.run_until_idle() == 1
        assert other.run_until_idle() == 1


class NoIndexOfStatus(Wrapped[Any]):
    """A store that cannot be asked for runs by shard and status: that index is still built."""

    def query(self, query: Query) -> Any:
        if {"shard", "status"} <= query.equal.keys():
            raise StoreUnavailableError(store="the test", problem="the query needs an index")
        return self.inner.query(query)


def test_runs_are_swept_where_dispatches_cannot_be_looked_for(environ: Environ) -> None:
    """After an update the index of both is built for a while; dead workers are found meanwhile."""
    clock = FrozenClock()
    with engine_on(environ, clock) as engine:
        run_id = engine.start("letters", {"n": 1}).run_id
        arrive(engine.engine, Hint(run_id, 1))
        clock.advance(timedelta(minutes=2))
        without_index: Any = NoIndexOfStatus(engine.engine.documents)
        engine.engine = replace(engine.engine, documents=without_index)

        with pytest.raises(StoreUnavailableError, match="needs an index"):
            engine.run_until_idle()

        assert engine.show(run_id).position.dispatch.generation == 2
