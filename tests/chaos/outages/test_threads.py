"""Threads that the system does not give: a process goes on with those that it has.

The system really has none: each new thread is to have a stack larger than any address.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from leasehold.attempt.stop import StopSignal
from leasehold.domain.status import Termination
from leasehold.testing import InProcessEngine, step_context
from leasehold.testing.contexts import RecordingContext
from leasehold.worker.stopping.system_signals import ShutdownCoordinator
from tests.chaos.outages.catalog import CALLS, ENTERED, GO_ON
from tests.chaos.outages.conftest import Make, cancel, reasons
from tests.worlds.waiting import until


@contextlib.contextmanager
def no_new_threads() -> Iterator[None]:
    threading.stack_size(2**48)
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=print).start()
        yield
    finally:
        threading.stack_size(0)


def held(engine: InProcessEngine) -> str:
    """Start a run whose handler waits; return its id once it does."""
    run = engine.start("makes", {"waits": True})
    until(lambda: run.run_id in ENTERED and ENTERED[run.run_id].is_set())
    return run.run_id


def test_leases_are_renewed_while_no_thread_can_be_had(make: Make) -> None:
    """The thread that watches renews them itself, several in turn; and then all goes on."""
    with make(workers=3, PIPELINE_LEASE_TTL_S="2") as engine:
        runs = [held(engine) for _ in range(3)]
        with no_new_threads():
            leases = {run_id: engine.show(run_id).position.lease for run_id in runs}
            until(lambda: all(renewed(engine, run_id, leases[run_id]) for run_id in runs))
        again = held_until_renewed(engine, runs[0])
        for run_id in runs:
            GO_ON[run_id].set()
        done = [engine.wait(run_id, 30) for run_id in runs]

    assert again
    assert {run.status for run in done} == {"COMPLETED"}
    assert {run.steps["make"].attempts.ended for run in done} == {0}


def renewed(engine: InProcessEngine, run_id: str, lease: object) -> bool:
    """Return whether the run is held for longer than the lease ran."""
    run = engine.show(run_id)
    assert run.position.heartbeat_at is not None
    assert lease is not None
    return run.position.heartbeat_at > lease.expires_at  # type: ignore[attr-defined]


def held_until_renewed(engine: InProcessEngine, run_id: str) -> bool:
    lease = engine.show(run_id).position.lease
    until(lambda: renewed(engine, run_id, lease))
    return True


def test_a_lease_that_is_lost_stops_its_handler_while_no_thread_can_be_had(make: Make) -> None:
    called = threading.Event()
    often = {"PIPELINE_LEASE_TTL_S": "600", "PIPELINE_HEARTBEAT_S": "1"}
    with make(**often) as engine:  # it hears of that with a heartbeat, and at no lease's end
        run_id = held(engine)
        (working,) = engine.held_runs()
        working.stop.on_stop(called.set)
        with no_new_threads():
            cancel(engine, run_id)
            until(lambda: working.stop.is_requested)
        assert called.wait(60), "once there are threads again, the callback is called"
        GO_ON[run_id].set()


def test_a_step_that_nothing_can_watch_over_is_deferred(make: Make) -> None:
    """Its lease would run out under its handler."""
    with make(workers=1) as engine:
        with no_new_threads():
            run = engine.start("makes", {})
            until(lambda: engine.show(run.run_id).position.attempts.deferred)
            assert CALLS[run.run_id, "make"] == 0
        done = engine.wait(run.run_id, 30)
        seen = reasons(engine, run)

    assert done.status == "COMPLETED"
    assert set(seen) == {"thread_unavailable"}
    assert done.steps["make"].attempts.failed == done.steps["make"].attempts.interrupted == 0


def test_an_engine_closes_and_releases_its_leases_while_no_thread_can_be_had(make: Make) -> None:
    engine = make()
    run_id = held(engine)
    with no_new_threads():
        engine.close(grace=0.2)
        GO_ON[run_id].set()
    with make(workers=0) as after:
        left = after.show(run_id)

    assert left.position.lease is None
    assert left.position.attempts.interrupted == 1


def test_an_engine_that_gets_no_threads_does_not_start_and_leaves_nothing_open(make: Make) -> None:
    before = threading.active_count()
    with no_new_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
        make()

    assert threading.active_count() <= before
    with make() as engine:
        assert engine.wait(engine.start("makes", {}).run_id, 30).status == "COMPLETED"


def test_callbacks_without_a_thread_wait_and_delay_nothing() -> None:
    stop, called = StopSignal(), [threading.Event() for _ in range(3)]
    for event in called:
        stop.on_stop(event.set)
    with no_new_threads():
        stop.request(Termination.CANCELLED)
        late = threading.Event()
        stop.on_stop(late.set)
        assert stop.is_requested
        stop.call_waiting()
        assert not any(event.is_set() for event in called)

    stop.call_waiting()

    assert all(event.wait(10) for event in (*called, late))


def test_a_callback_that_is_forgotten_while_it_waits_is_not_called() -> None:
    stop, called = StopSignal(), threading.Event()
    forget = stop.on_stop(called.set)
    with no_new_threads():
        stop.request(Termination.CANCELLED)
    forget()

    stop.call_waiting(here=True)

    assert not called.is_set()


def test_a_shutdown_is_told_in_the_thread_that_asks_where_there_is_no_other() -> None:
    """The platform kills the process in seconds: there is no time to wait for a thread."""
    shutdown, called = ShutdownCoordinator(), []
    shutdown.on_stop(lambda: called.append(threading.current_thread()))
    with no_new_threads():
        shutdown.request()

    assert called == [threading.current_thread()]


def test_a_watch_that_got_no_thread_is_tried_again() -> None:
    shutdown = ShutdownCoordinator()
    with no_new_threads():
        shutdown.watch()
        assert not shutdown.is_watching

    shutdown.watch()

    assert shutdown.is_watching


def test_calls_that_get_no_thread_are_made_one_by_one(make: Make) -> None:
    made: list[int] = []
    calls: list[Callable[[], None]] = [lambda: made.append(1), lambda: made.append(2)]
    with make(workers=0) as engine, no_new_threads():
        engine.engine.threads.side_by_side(partial(next, iter(calls), None), len(calls))

    assert made == [1, 2]


def test_a_checkpoint_of_a_coroutine_is_kept_without_a_thread_for_it(make: Make) -> None:
    with make(workers=1) as engine:
        run = engine.start("awaits", {"waits": True})
        until(lambda: run.run_id in ENTERED and ENTERED[run.run_id].is_set())
        with no_new_threads():
            GO_ON[run.run_id].set()
            done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert done.position.attempts.ended == 0


def test_a_coroutine_without_a_thread_blocks_and_loses_nothing() -> None:
    async def handler(ctx: RecordingContext) -> object:
        with no_new_threads():
            await ctx.artifacts.aput("a.txt", b"a")
            loop = ctx.acheckpointed("ab", 1)
            async for letter in loop:
                loop.results.append(letter)
            return await ctx.aoutput_of("before"), loop.results

    with step_context(outputs={"before": 7}) as ctx:
        made = asyncio.run(handler(ctx))

    assert made == (7, ["a", "b"])
    assert (len(ctx.recorded.checkpoints), ctx.recorded.files) == (2, {"a.txt": b"a"})
