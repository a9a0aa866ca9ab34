"""The engine with threads and the machine's clock: many runs, restarts, renewals."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import on_run
from leasehold.domain.effect import dispatch_task
from leasehold.domain.manifest import run_ref
from leasehold.domain.manifest_parts import Progress
from leasehold.testing import InProcessEngine
from tests.worlds.catalogs.sample import CALLS, ENTERED, GO_ON
from tests.worlds.waiting import until

Make = Callable[..., InProcessEngine]
Hold = Callable[..., Any]


def test_many_runs_at_once_complete_with_each_step_run_once(threaded: Make) -> None:
    with threaded(workers=8) as engine:
        runs = [engine.start("three", {"n": number}).run_id for number in range(60)]
        done = [engine.wait(run_id, 60) for run_id in runs]

    assert {run.status for run in done} == {"COMPLETED"}
    assert [run.steps["add_again"].output for run in done] == [
        f'{{"n":{number + 3}}}' for number in range(60)
    ]
    assert {CALLS[run_id, step] for run_id in runs for step in ("add", "add_again")} == {1}


def test_an_idle_worker_has_the_first_lease_of_a_run_with_its_start(threaded: Make) -> None:
    with threaded(workers=1) as engine:
        until(engine._queue.reserve_worker)  # noqa: SLF001 - it is idle
        engine._queue.end_reservation(None)  # noqa: SLF001
        begun = engine.start("three", {"n": 1})
        done = engine.wait(begun.run_id, 30)

    assert begun.status == "IN_PROGRESS"
    assert begun.position.lease is not None
    assert done.status == "COMPLETED"


def test_a_restart_takes_up_all_that_is_live(threaded: Make) -> None:
    """The queue keeps nothing: the manifests say what is due."""
    with threaded(workers=0) as before:
        waiting = [before.start("three", {"n": number}).run_id for number in range(5)]

    with threaded(workers=2) as after:
        assert after.adopt_all() == 5
        done = [after.wait(run_id, 30).status for run_id in waiting]

    assert done == ["COMPLETED"] * 5


def test_a_retry_comes_by_itself(threaded: Make) -> None:
    with threaded() as engine:
        run = engine.start("recovers", {"n": 1})
        done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert done.steps["fail_twice"].attempts.failed == 2


def test_a_run_goes_on_soon_after_an_outage_whatever_the_backoff_of_failures(
    threaded: Make, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Its task is in the queue meanwhile: nothing counts it as lost."""
    with threaded(workers=0) as before:
        run = before.start("three", {"n": 1})
    with (
        threaded(workers=1, PIPELINE_MIN_BACKOFF_S="60") as engine,
        contextlib.closing(
            sqlite3.connect(environ["LEASEHOLD_STORE"].removeprefix("sqlite:///"))
        ) as vandal,
    ):
        vandal.execute("ALTER TABLE runs RENAME TO hidden")
        task = dispatch_task(run)
        engine.engine.tasks.create(task)
        until(lambda: caplog.text.count("could not be worked on") >= 2)
        is_there = engine.engine.tasks.exists(task)
        vandal.execute("ALTER TABLE hidden RENAME TO runs")
        done = engine.wait(run.run_id, 20)

    assert is_there
    assert done.status == "COMPLETED"


def test_a_lease_is_renewed_while_its_handler_works(threaded: Make, holding: Hold) -> None:
    """The handler works for longer than the lease runs; it is not taken from it."""
    with threaded(PIPELINE_LEASE_TTL_S="3", PIPELINE_HEARTBEAT_S="0.1") as engine:
        run = holding(engine)
        acquired = engine.show(run.run_id).position.lease
        assert acquired is not None
        until(lambda: engine.show(run.run_id).position.heartbeat_at > acquired.expires_at)
        held = engine.show(run.run_id)
        GO_ON[run.run_id].set()
        done = engine.wait(run.run_id, 30)

    assert held.position.lease is not None
    assert held.position.lease.lease_id == acquired.lease_id
    assert held.fencing_token == 1
    assert held.steps["hold"].progress is not None
    assert held.steps["hold"].progress.message == "half way"
    assert done.status == "COMPLETED"
    assert done.steps["hold"].attempts.expired == 0


def test_a_worker_that_lost_its_lease_stops_and_changes_nothing(
    threaded: Make, holding: Hold
) -> None:
    """Another process ends the lease, as a sweep would; the next generation completes."""
    with threaded(PIPELINE_HEARTBEAT_S="0.1") as engine:
        run = holding(engine)
        lease = engine.show(run.run_id).position.lease
        assert lease is not None
        ENTERED[run.run_id].clear()
        end = partial(
            lifecycle.expire, rules=engine.engine.rules, lease_id=lease.lease_id, holder_gone=True
        )
        engine.engine.documents.transact(run_ref(run.run_id), on_run(run.run_id, end))
        engine.adopt(run.run_id)
        assert ENTERED[run.run_id].wait(60)
        GO_ON[run.run_id].set()
        done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert done.fencing_token == 3
    assert done.position.attempts.failed == 0
    assert done.steps["hold"].attempts.expired == 1


def test_an_engine_that_closes_gives_its_runs_back(threaded: Make, holding: Hold) -> None:
    """No retry is burnt: the next engine goes on at once."""
    with threaded() as engine:
        run = holding(engine)

    GO_ON[run.run_id].set()
    with threaded() as engine:
        left = engine.show(run.run_id)
        engine.adopt(run.run_id)
        done = engine.wait(run.run_id, 30)

    assert left.status == "PENDING"
    assert left.position.lease is None
    assert left.position.attempts.interrupted == 1
    assert left.position.attempts.failed == 0
    assert done.status == "COMPLETED"


def test_a_run_held_elsewhere_is_looked_at_again_when_that_lease_is_over(
    threaded: Make, holding: Hold
) -> None:
    """Two engines, one store: the second leaves the lease alone and comes back at its end."""
    with threaded() as engine, threaded() as other:
        run = holding(engine)
        other.adopt(run.run_id)
        held = other.show(run.run_id)
        GO_ON[run.run_id].set()
        done = engine.wait(run.run_id, 30)

    assert held.position.lease is not None
    assert held.position.lease.max_expires_at - held.position.lease.acquired_at == timedelta(
        minutes=7
    )
    assert done.status == "COMPLETED"
    assert CALLS[run.run_id, "hold"] == 1


def test_waiting_has_an_end(threaded: Make, holding: Hold) -> None:
    with threaded() as engine:
        run = holding(engine)

        with pytest.raises(TimeoutError, match="still moves after"):
            engine.wait(run.run_id, 0.01)

        GO_ON[run.run_id].set()
        assert engine.wait(run.run_id, 30).status == "COMPLETED"


def test_a_worker_whose_renewals_do_not_come_stops_its_handler_in_time(
    threaded: Make, holding: Hold
) -> None:
    """So two workers never work on a step at once; the next attempt need not wait for the end."""
    with threaded(PIPELINE_LEASE_TTL_S="3", PIPELINE_HEARTBEAT_S="0.5") as engine:
        run = holding(engine)
        for held in engine.held_runs():
            held.renew_every = None
        until(lambda: engine.show(run.run_id).position.dispatch.generation == 2)
        GO_ON[run.run_id].set()
        done = engine.wait(run.run_id, 30)
        events = engine.trace(run.run_id)

    (ended,) = [event for event in events if event.type == "step_terminated"]
    assert done.status == "COMPLETED"
    assert ended.reason == "lease_expired"
    ends = done.steps["hold"].attempts
    assert (ends.expired, ends.interrupted, ends.failed) == (1, 0, 0)
    assert CALLS[run.run_id, "hold"] == 1
    assert "lease_lost" not in {event.type for event in events}


def test_an_attempt_that_outlives_its_lease_is_lost_and_its_run_goes_on(
    threaded: Make, holding: Hold
) -> None:
    """Its handler hears no signal, and it is alone: the sweep dispatches it again."""
    with threaded(PIPELINE_LEASE_TTL_S="3", PIPELINE_HEARTBEAT_S="0.1") as engine:
        run = holding(engine, "deaf")
        for held in engine.held_runs():
            held.renew_every = None
        ENTERED[run.run_id].clear()
        assert ENTERED[run.run_id].wait(60)  # of the second attempt
        GO_ON[run.run_id].set()
        done = engine.wait(run.run_id, 30)
        until(lambda: "lease_lost" in {event.type for event in engine.trace(run.run_id)})
        events = engine.trace(run.run_id)

    (lost,) = [event for event in events if event.type == "lease_lost"]
    assert done.status == "COMPLETED"
    assert done.fencing_token == 2
    assert done.steps["deaf"].attempts.expired == 1
    assert (done.position.attempts.interrupted, done.position.attempts.failed) == (0, 0)
    assert CALLS[run.run_id, "deaf"] == 2
    assert (lost.step, lost.attempt) == ("deaf", 1)
    assert [str(event.type) for event in events].count("run_completed") == 1


def test_a_waiter_sees_the_end_that_another_engine_brings(threaded: Make, holding: Hold) -> None:
    with threaded() as engine, threaded() as other:
        run = holding(engine)
        other.adopt(run.run_id)
        GO_ON[run.run_id].set()
        done = other.wait(run.run_id, 30)

    assert done.status == "COMPLETED"


def test_a_run_is_taken_up_by_the_next_start_with_its_key(threaded: Make) -> None:
    with threaded(workers=0) as engine:
        left = engine.start("three", {"n": 1}, idempotency_key="left")
    with threaded() as engine:
        again = engine.start("three", {"n": 1}, idempotency_key="left")
        done = engine.wait(again.run_id, 30)

    assert again.run_id == left.run_id
    assert done.status == "COMPLETED"


def test_a_handler_whose_error_cannot_speak_fails_like_any_other(engine: InProcessEngine) -> None:
    run = engine.start("speechless", {"n": 1})

    engine.run_until_idle()

    error = engine.show(run.run_id).error
    assert error is not None
    assert error.message == "Its words raised RuntimeError."


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_an_output_that_json_cannot_say_is_refused(engine: InProcessEngine, value: str) -> None:
    """Stored as null it would look like a result."""
    run = engine.start("odd", {"value": value})

    engine.run_until_idle()

    error = engine.show(run.run_id).error
    assert error is not None
    assert error.code == "invalid_output"


def test_a_progress_message_that_is_not_text_costs_no_lease(threaded: Make, holding: Hold) -> None:
    with threaded(PIPELINE_LEASE_TTL_S="0.6", PIPELINE_HEARTBEAT_S="0.1") as engine:
        run = holding(engine)
        for held in engine.held_runs():
            held.progress = Progress.model_construct(fraction=0.5, message="file \udce9")
        other = engine.start("mumbles", {"n": 1})
        until(
            lambda: (
                engine.show(run.run_id).fencing_token > 1
                or engine.show(other.run_id).position.lease
            )
        )
        GO_ON[run.run_id].set()

        assert engine.wait(other.run_id, 30).status == "COMPLETED"
        assert engine.wait(run.run_id, 30).status == "COMPLETED"
