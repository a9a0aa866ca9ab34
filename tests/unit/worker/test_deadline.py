"""User code at work at its dispatch deadline: what no process bounds, the lease keeper ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.domain import lifecycle
from leasehold.domain.change import on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.effect import dispatch_task
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.notes import ThreadStack
from leasehold.domain.override import override_ref
from leasehold.domain.status import Outcome, Termination
from leasehold.domain.stored import Write
from leasehold.domain.trace import TraceEvent
from leasehold.errors import LeaseLostError
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import find_run
from leasehold.services.execute_step import Hint, arrive, execute_step
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.shut_down import shut_down
from leasehold.services.start_run import StartRequest, start_run
from leasehold.worker.stopping.thread_stacks import stack_of
from tests.unit.worker import hanging
from tests.unit.worker.hanging import GO_ON, MET, MET_IN_CALL, SAYS, THERE
from tests.unit.worker.leased_world import World, holding, world_of
from tests.worlds.waiting import until

#: Of every step here; its leases run 30 s, and are renewed every 10 s.
DEADLINE_S = 120


#: Those whose handlers hang.
THREADS: list[threading.Thread] = []


@dataclass
class Hung:
    """One attempt in its own thread, which is there by now."""

    world: World
    run_id: str
    outcomes: list[Outcome] = field(default_factory=list)
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        THERE[self.run_id], GO_ON[self.run_id] = threading.Event(), threading.Event()
        MET[self.run_id] = []
        self.thread = threading.Thread(target=self._work)
        self.thread.start()
        THREADS.append(self.thread)
        assert THERE[self.run_id].wait(30)

    def _work(self) -> None:
        self.outcomes.append(execute_step(self.world.engine, Hint(self.run_id, 1)))

    @property
    def run(self) -> Manifest:
        return get_run(self.world.engine, self.run_id)

    @property
    def events(self) -> list[TraceEvent]:
        planned = ("run_started", "step_started")
        story = timeline_of(self.world.engine, self.run_id)
        return [event for event in story if event.type not in planned]

    def pass_time(self, seconds: int) -> None:
        """Let time pass as it does: whatever is due is done."""
        for _ in range(seconds // 5):
            self.world.clock.advance(5)
            self.world.engine.leases.look()

    def hear_nothing(self, seconds: int) -> None:
        """Let time pass in which its worker listens."""
        for _ in range(seconds):
            self.world.clock.advance(1)
            self.world.engine.leases.look()

    def change(self, operation: Any) -> None:
        change = partial(operation, rules=self.world.engine.rules, actor="ada", reason="")
        self.world.store.transact(run_ref(self.run_id), on_run(self.run_id, change))

    def come_back(self) -> None:
        GO_ON[self.run_id].set()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    catalog = Catalog(steps=hanging.STEPS, pipelines=hanging.PIPELINES, gates=hanging.GATES)
    with world_of(tmp_path, catalog) as made:
        yield made
        for go_on in GO_ON.values():
            go_on.set()
        while THREADS:  # each asks the store once more what became of its attempt
            THREADS.pop().join(30)


def hung(world: World, pipeline: str = "hang") -> Hung:
    return Hung(world, start_run(world.engine, StartRequest(pipeline, {"n": 1})).manifest.run_id)


def test_a_handler_that_hangs_is_ended_at_its_deadline_and_its_retry_dispatched(
    world: World,
) -> None:
    """Its thread, which may never return, is not waited for."""
    attempt = hung(world)

    attempt.pass_time(DEADLINE_S - 5)
    before = attempt.run
    attempt.pass_time(5)

    assert before.position.lease is not None
    run = attempt.run
    assert (run.status, run.position.lease, run.position.attempts.failed) == ("ERROR", None, 1)
    assert world.engine.tasks.exists(dispatch_task(run))
    assert run.steps["hang"].progress is not None
    assert run.steps["hang"].progress.message == "half way"
    (event,) = attempt.events
    assert (event.type, event.reason, event.attempt) == (
        "step_terminated",
        "dispatch_deadline_exceeded",
        1,
    )
    assert event.stacks is not None
    assert event.stacks.startswith("The thread of the handler (most recent call last):\n  File ")
    assert "in hang\n" in event.stacks
    assert "GO_ON[run_id].wait(60)  # the line it hangs on" in event.stacks
    assert run.error is not None
    assert run.error.code == "dispatch_deadline_exceeded"
    assert (run.error.origin or "").startswith("hanging.py:")


def test_of_a_coroutine_the_line_is_shown_that_it_waits_at(world: World) -> None:
    """Its thread is in the event loop, which says nothing."""
    attempt = hung(world, "hang_later")
    thread = attempt.thread.ident or 0
    until(lambda: "await asyncio.to_thread(" in stack_of(thread, "tests").text)

    attempt.pass_time(DEADLINE_S)
    attempt.come_back()

    (event,) = attempt.events
    assert "await _answer_of(ctx.run_id)\n" in (event.stacks or "")
    assert attempt.run.error is not None
    assert "(_answer_of)" in (attempt.run.error.origin or "")


def test_of_a_deep_stack_the_last_calls_are_kept(world: World) -> None:
    attempt = hung(world, "recurse")

    attempt.pass_time(DEADLINE_S)

    (event,) = attempt.events
    stacks = event.stacks or ""
    assert len(stacks.encode()) <= 8192
    assert "frames left out]" in stacks
    assert "the line it hangs on" in stacks


def test_a_thread_that_is_gone_has_no_stack() -> None:
    assert stack_of(0, "tests:hang") == ThreadStack()


def test_what_hung_changes_nothing_when_it_comes_back(world: World) -> None:
    attempt = hung(world)
    attempt.pass_time(DEADLINE_S)
    before = attempt.run

    attempt.come_back()

    (met,) = MET[attempt.run_id]
    assert isinstance(met, LeaseLostError)
    assert attempt.run == before
    assert attempt.outcomes == [Outcome.RETRY_SCHEDULED]
    assert len(attempt.events) == 1


def test_a_handler_that_hears_its_stop_at_the_deadline_ends_as_the_trace_says(
    world: World,
) -> None:
    attempt = hung(world, "obey")

    attempt.pass_time(DEADLINE_S)
    attempt.thread.join(30)

    assert attempt.outcomes == [Outcome.RETRY_SCHEDULED]
    assert [event.reason for event in attempt.events] == ["dispatch_deadline_exceeded"]
    assert attempt.run.position.attempts.failed == 1


def test_a_gate_that_hangs_is_ended_as_a_handler_is(world: World) -> None:
    attempt = hung(world, "done")

    attempt.pass_time(DEADLINE_S)
    run = attempt.run
    attempt.come_back()

    assert (run.status, run.position.attempts.failed, run.position.lease) == ("ERROR", 1, None)
    (event,) = attempt.events
    assert "in ponder" in (event.stacks or "")
    assert attempt.run == run


def test_an_output_that_is_there_at_the_deadline_is_not_thrown_away(world: World) -> None:
    """Nothing of the user's is at work any more: it is only being settled."""
    run = start_run(world.engine, StartRequest("hang", {"n": 1})).manifest
    acquired = arrive(world.engine, Hint(run.run_id, 1))
    with holding(world.engine, acquired) as held:
        for _ in range(13):
            world.clock.advance(10)
            world.engine.leases.look()
        complete = partial(lifecycle.complete, rules=world.engine.rules, fence=held.fence)
        held.settle(partial(complete, output=KeptValue(text="1")))

    assert get_run(world.engine, run.run_id).status == "COMPLETED"


def test_a_store_that_is_away_at_the_deadline_is_asked_again(world: World) -> None:
    """The handler is told all the same."""
    attempt = hung(world)
    attempt.pass_time(DEADLINE_S - 5)
    (held,) = world.engine.leases.held_attempts()
    world.store.is_down = True
    attempt.pass_time(5)
    assert held.stop.reason == "dispatch_deadline_exceeded"
    assert not held.is_settled

    world.store.is_down = False
    attempt.pass_time(5)

    assert [event.reason for event in attempt.events] == ["dispatch_deadline_exceeded"]
    assert attempt.run.position.attempts.failed == 1


def test_a_store_that_is_away_until_the_lease_is_over_makes_no_failure_of_it(
    world: World,
) -> None:
    """An outage is not a failure: the worker was last heard of before the deadline."""
    attempt = hung(world)
    attempt.pass_time(DEADLINE_S - 5)
    world.store.is_down = True
    attempt.pass_time(35)
    world.store.is_down = False
    attempt.pass_time(5)

    (held,) = world.engine.leases.held_attempts()
    assert held.is_settled
    assert [event.type for event in attempt.events] == ["lease_lost"]
    expire = partial(lifecycle.expire, rules=world.engine.rules, lease_id=held.fence.lease_id)
    world.store.transact(run_ref(attempt.run_id), on_run(attempt.run_id, expire))
    ends = attempt.run.position.attempts
    assert (ends.failed, ends.expired) == (0, 1)


def test_a_process_that_was_frozen_past_deadline_and_lease_finds_it_lost(world: World) -> None:
    attempt = hung(world)
    before = attempt.run

    world.clock.advance(DEADLINE_S + 60)
    world.engine.leases.look()
    (held,) = world.engine.leases.held_attempts()

    until(lambda: held.is_settled)
    assert held.stop.is_requested
    assert attempt.run == before
    assert [event.type for event in attempt.events] == ["lease_lost"]


def test_a_paused_run_is_ended_at_its_deadline_and_stays_with_its_person(world: World) -> None:
    attempt = hung(world)
    attempt.pass_time(60)
    attempt.change(lifecycle.pause)

    attempt.pass_time(DEADLINE_S - 60)

    run = attempt.run
    assert (run.status, run.paused, run.position.attempts.failed) == ("ERROR", True, 1)
    assert run.alarm_at is None


def _look(attempt: Hung) -> None:
    attempt.world.engine.leases.look()


def _renew_from_afar(attempt: Hung) -> None:
    """Renew as a remote worker does: each call knows nothing but the stored run."""
    known = find_run(attempt.world.engine, attempt.run_id)
    assert known.manifest.position.lease is not None
    fence = Fence(known.manifest.position.lease.lease_id, known.manifest.fencing_token)
    with pytest.raises(LeaseLostError, match="dispatch deadline"):
        Attempt(attempt.world.engine, known, fence).renew()


@pytest.mark.parametrize("end", [_look, _renew_from_afar])
def test_the_retry_has_the_override_that_was_set_while_the_attempt_hung(
    world: World, end: Callable[[Hung], None]
) -> None:
    """The thread that ends it has read no overrides since it began."""
    attempt = hung(world)
    attempt.pass_time(DEADLINE_S - 5)
    until = world.clock.now() + timedelta(hours=1)
    fields = {"timeoutS": 30, "until": until, "why": "it hangs", "setBy": "ada"}
    world.store.transact(override_ref("hang"), lambda _, __: Write(None, fields))
    world.clock.advance(5)

    end(attempt)

    assert attempt.run.position.attempts.failed == 1
    assert attempt.run.position.dispatch.timeout_ms == 30_000
    attempt.come_back()


@pytest.mark.parametrize("says", ["progress", "checkpoint", "call", "its log", "any logger"])
def test_a_handler_that_says_nothing_for_too_long_is_ended(world: World, says: str) -> None:
    """It has a minute, and whatever it says in between lets it go on."""
    attempt = hung(world, "mutter")
    SAYS[attempt.run_id] = says
    attempt.hear_nothing(20)
    THERE[attempt.run_id].clear()
    GO_ON[attempt.run_id].set()
    assert THERE[attempt.run_id].wait(30)
    attempt.hear_nothing(29)
    before = attempt.run

    attempt.hear_nothing(2)
    run = attempt.run
    SAYS[attempt.run_id] = ""
    attempt.come_back()

    assert before.position.lease is not None
    assert (run.status, run.position.lease, run.position.attempts.failed) == ("ERROR", None, 1)
    assert run.error is not None
    assert run.error.code == "silence_limit_exceeded"
    assert "for its silence limit of 30 s" in run.error.message
    (event,) = [event for event in attempt.events if event.type == "step_terminated"]
    assert event.reason == "silence_limit_exceeded"
    assert "in mutter\n" in (event.stacks or "")
    assert attempt.run == run


def test_time_in_which_a_worker_was_frozen_is_no_silence_of_its_handler(world: World) -> None:
    attempt = hung(world, "mutter")
    attempt.hear_nothing(20)

    world.clock.advance(12)  # less than its lease: nothing else ends it
    attempt.hear_nothing(8)

    before = attempt.run
    attempt.hear_nothing(2)
    SAYS[attempt.run_id] = ""
    attempt.come_back()

    assert before.position.lease is not None
    assert [event.reason for event in attempt.events] == ["silence_limit_exceeded"]


def test_a_handler_that_waits_for_a_store_is_not_silent(world: World) -> None:
    attempt = hung(world, "mutter")
    SAYS[attempt.run_id] = "checkpoint"
    THERE[attempt.run_id].clear()
    world.store.is_down = True
    GO_ON[attempt.run_id].set()
    until(lambda: any(held.outage for held in world.engine.leases.held_attempts()))

    for _ in range(20):
        attempt.hear_nothing(1)
    world.store.is_down = False

    is_there = THERE[attempt.run_id].wait(30)
    run = attempt.run
    SAYS[attempt.run_id] = ""
    attempt.come_back()

    assert is_there
    assert run.position.lease is not None


@pytest.mark.parametrize("says", ["call", "call of another thread"])
def test_a_handler_that_waits_for_a_slow_store_is_not_silent(world: World, says: str) -> None:
    """It is not known yet to be away; a thread that waits for the turn of the call waits, too."""
    attempt = hung(world, "mutter")
    SAYS[attempt.run_id] = says
    THERE[attempt.run_id].clear()
    world.store.hangs = f"runs/{attempt.run_id}/calls"
    GO_ON[attempt.run_id].set()
    assert world.store.hanging.wait(30)

    attempt.hear_nothing(40)
    before = attempt.run
    world.store.may_continue.set()
    is_there = THERE[attempt.run_id].wait(30)
    SAYS[attempt.run_id] = ""
    attempt.come_back()

    assert is_there
    assert before.position.lease is not None
    assert attempt.run.status == "COMPLETED"


def test_a_handler_that_waits_for_a_call_of_another_thread_is_silent_with_it(world: World) -> None:
    """That call asks no store: its provider hangs, and nothing else would end it."""
    attempt = hung(world, "mutter")
    SAYS[attempt.run_id] = "call that hangs"
    GO_ON[attempt.run_id].set()
    assert MET_IN_CALL.acquire(timeout=30)

    attempt.hear_nothing(31)
    run = attempt.run
    SAYS[attempt.run_id] = ""
    attempt.come_back()

    assert run.error is not None
    assert run.error.code == "silence_limit_exceeded"


def test_a_cancelled_run_ended_with_its_cancellation(world: World) -> None:
    attempt = hung(world)
    attempt.pass_time(DEADLINE_S - 5)
    attempt.change(lifecycle.cancel)

    attempt.pass_time(30)

    assert attempt.run.cancelled
    assert [event.reason for event in attempt.events if event.type == "step_terminated"] == [
        "cancelled"
    ]


def test_a_shutdown_stays_an_interruption_at_the_deadline(world: World) -> None:
    attempt = hung(world)
    attempt.pass_time(DEADLINE_S - 5)
    world.engine.leases.stop_all(Termination.INSTANCE_SHUTDOWN)
    attempt.pass_time(5)

    shut_down(world.engine, grace=0)

    ends = attempt.run.position.attempts
    assert (ends.interrupted, ends.failed) == (1, 0)


def test_a_handler_that_runs_on_is_reported_once_and_again_when_it_returns(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """What is lost is a thread of the worker: it has to be reported."""
    attempt = hung(world)
    attempt.pass_time(60)
    attempt.change(lifecycle.cancel)

    attempt.pass_time(60)
    said = [record.getMessage() for record in caplog.records]
    attempt.come_back()

    (line,) = [text for text in said if "still runs" in text]
    assert line.startswith(
        f"handler tests.unit.worker.hanging:hang of run {attempt.run_id} still runs "
    )
    assert "s after it was asked to stop (cancelled), at hanging.py:" in line
    assert line.endswith('isolation="process" would have killed it')
    until(lambda: " s after it was asked to stop, and its thread is free" in caplog.text)
    assert caplog.records[-1].getMessage().endswith("what it brought is discarded")
