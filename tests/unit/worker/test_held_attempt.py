"""A run under a lease: on a real store, in time that the test moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.attempt.attempt import Attempt
from leasehold.attempt.calls import AttemptCalls
from leasehold.attempt.checkpoints import keep_checkpoint
from leasehold.attempt.settlement import ending_of
from leasehold.domain import lifecycle
from leasehold.domain.change import on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.manifest import run_ref
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.result import Failed, Finished
from leasehold.domain.status import Outcome, Termination
from leasehold.domain.stored import Write
from leasehold.errors import LeaseLostError, StoreUnavailableError
from leasehold.services.execute_step import Hint, arrive, execute_step
from leasehold.services.operate import request_stack
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.shut_down import shut_down
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from leasehold.worker.context.step_context import StepContext
from tests.unit.worker.leased_world import World, holding
from tests.worlds.catalogs.sample import CALLS
from tests.worlds.waiting import until

RESULTS = '["one"]'


def complete(world: World, held: Attempt) -> None:
    finish = partial(
        lifecycle.complete,
        rules=world.engine.rules,
        fence=held.fence,
        output=KeptValue(text='{"n":2}'),
    )
    held.settle(finish)


def save(_: World, held: Attempt) -> None:
    keep_checkpoint(held, 1, "", RESULTS)


def renew(_: World, held: Attempt) -> None:
    held.beat()


# --- a lease that is lost ---


@pytest.mark.parametrize("first", [renew, save, complete])
@pytest.mark.parametrize("taken", [True, False], ids=["taken over", "nobody took it"])
def test_a_zombie_writes_nothing_but_one_word_of_it(
    world: World, first: Callable[[World, Attempt], None], taken: bool
) -> None:
    """Its process was stopped for longer than its lease, and goes on."""
    zombie = world.held()
    world.clock.advance(31)
    if taken:
        arrive(world.engine, Hint(zombie.manifest.run_id, 1))
    before = world.run_of(zombie)

    for write in (first, renew, save, complete):
        if write is renew:
            renew(world, zombie)
            continue
        with pytest.raises(LeaseLostError):
            write(world, zombie)

    assert world.run_of(zombie) == before
    assert zombie.stop.reason == "lease_expired"
    assert zombie.is_settled
    (lost,) = world.losses(zombie)
    facts = lost.model_dump(by_alias=True)
    assert (facts["step"], facts["leaseId"]) == ("hold", zombie.fence.lease_id)
    assert facts["fencingToken"] == 1
    if taken and first is complete:  # what was settled before counts, so the store is asked
        assert facts["detail"].startswith("it is held by ")
    else:
        assert facts["detail"] == "it ended at 2026-01-01T00:00:30+00:00"


def test_a_worker_whose_lease_was_ended_early_learns_who_has_it(world: World) -> None:
    """As when it was taken for dead: by its own watch the lease still runs."""
    held = world.held()
    run_id = held.manifest.run_id
    facts: dict[str, Any] = {"rules": world.engine.rules, "lease_id": held.fence.lease_id}
    end = partial(lifecycle.expire, **facts, holder_gone=True)
    world.store.transact(run_ref(run_id), on_run(run_id, end))
    arrive(world.engine, Hint(run_id, 2))
    before = world.run_of(held)

    held.beat()

    assert world.run_of(held) == before
    assert held.stop.reason == "lease_expired"
    (lost,) = world.losses(held)
    assert lost.detail == f"it is held by {world.engine.process.holder}, token 2"


def test_a_cancelled_run_stops_its_handler_and_lost_nothing(world: World) -> None:
    """The cancellation told how the attempt ended."""
    held = world.held()
    world.cancel(held)
    before = world.run_of(held)

    held.beat()
    with pytest.raises(LeaseLostError):
        save(world, held)
    complete(world, held)

    assert held.stop.reason == "cancelled"
    assert world.losses(held) == []
    assert world.run_of(held) == before


def test_what_comes_after_this_worker_gave_the_lease_back_is_refused(world: World) -> None:
    """The lease was not lost: the trace says how the attempt ended, and says it once."""
    held = world.held()
    facts: dict[str, Any] = {"rules": world.engine.rules, "fence": held.fence}
    held.settle(partial(lifecycle.release, **facts, reason="instance_shutdown"))
    before = world.run_of(held)

    with pytest.raises(LeaseLostError, match="its attempt is over"):
        save(world, held)
    held.beat()
    complete(world, held)

    assert world.run_of(held) == before
    assert before.position.attempts.interrupted == 1
    assert world.losses(held) == []


def test_the_loss_is_not_reported_where_the_store_is_down(world: World) -> None:
    """That nothing was written is what counts; the word of it may be missing."""
    zombie = world.held()
    world.clock.advance(31)
    world.store.is_down = True

    with pytest.raises(StoreUnavailableError):
        save(world, zombie)
    zombie.beat()

    assert not zombie.is_settled
    world.store.is_down = False
    with pytest.raises(LeaseLostError):
        save(world, zombie)
    assert len(world.losses(zombie)) == 1


# --- time ---


def test_a_renewal_that_succeeds_stops_nothing(world: World) -> None:
    held = world.held()

    for _ in range(11):  # the step has 2 minutes
        world.clock.advance(10)
        assert held.stop_at > world.clock.monotonic()
        held.beat()

    lease = world.run_of(held).position.lease
    assert not held.stop.is_requested
    assert lease is not None
    assert (lease.expires_at - world.clock.now()).total_seconds() == 30
    assert held.renew_at - world.clock.monotonic() == 10


def test_a_handler_is_to_stop_before_its_lease_is_over(world: World) -> None:
    held = world.held()
    assert held.stop_at - world.clock.monotonic() == 25

    world.clock.advance(10)
    save(world, held)

    assert held.stop_at - world.clock.monotonic() == 25


@pytest.mark.parametrize(("seconds", "paid"), [(24, ["once"]), (26, [])])
def test_a_call_begins_only_while_the_lease_is_held(
    world: World, seconds: float, paid: list[str]
) -> None:
    """The threads of a frozen process go on at once: no stop is requested by then."""
    ctx, made = StepContext(AttemptCalls(world.held())), list[str]()
    world.clock.advance(seconds)

    with pytest.raises(LeaseLostError) if not paid else nullcontext():
        ctx.once("pay", made.append, "once")

    assert made == paid


def test_a_renewal_counts_from_when_it_was_asked_for(world: World) -> None:
    """The store may have written long before its answer came."""
    held = world.held()
    world.clock.advance(10)
    world.store.takes = 4

    held.beat()

    lease = world.run_of(held).position.lease
    assert lease is not None
    left = (lease.expires_at - world.clock.now()).total_seconds()
    assert left - (held.stop_at - world.clock.monotonic()) >= 5


def test_a_renewal_that_fails_leaves_the_end_where_it_was(world: World) -> None:
    held = world.held()
    stop_at = held.stop_at
    world.clock.advance(10)
    world.store.is_down = True

    held.beat()

    assert held.stop_at == stop_at
    assert not held.stop.is_requested
    assert held.renew_at - world.clock.monotonic() == 10


def test_a_stack_is_due_as_soon_as_a_checkpoint_brings_its_request(world: World) -> None:
    """The person who asked waits for it, and the next beat may be minutes away."""
    held = world.held()
    request_stack(world.engine, held.manifest.run_id, "ada")
    was_due = held.is_due

    save(world, held)
    is_due = held.is_due
    held.beat()

    assert (was_due, is_due, held.is_due) == (False, True, False)
    events = timeline_of(world.engine, held.manifest.run_id)
    assert [event.type for event in events].count("stack_taken") == 1


def test_a_store_that_hangs_for_one_run_costs_no_other_run_its_lease(world: World) -> None:
    """And the handler of the run itself is stopped in time, whatever its renewal waits for."""
    one, other = world.acquire(), world.acquire()
    began = world.clock.now()
    with (
        holding(world.engine, one) as hanging,
        holding(world.engine, other) as renewed,
    ):
        world.store.hangs = hanging.manifest.run_id
        for beat in (1, 2):
            world.clock.advance(10)
            until(
                lambda beat=beat: (  # type: ignore[misc] # bound here
                    (world.run_of(renewed).position.heartbeat_at - began).total_seconds()
                    == 10 * beat  # type: ignore[operator] # it has one
                )
            )
            assert not hanging.stop.is_requested
        world.clock.advance(5)
        stopped = hanging.stop.wait(10)

        lease = world.run_of(hanging).position.lease
        assert stopped
        assert hanging.stop.reason == "lease_expired"
        assert lease is not None
        assert (lease.expires_at - world.clock.now()).total_seconds() == 5
        assert not renewed.stop.is_requested
        world.store.may_continue.set()


def test_a_handler_that_ignores_its_stop_is_told_lost_once_the_store_says_so(
    world: World,
) -> None:
    """And not when it ends at last. It is renewed no more, but looked after."""
    acquired = world.acquire()
    with holding(world.engine, acquired) as held:
        world.clock.advance(25)  # at once: two renewals did not come
        stopped = held.stop.wait(10)
        world.clock.advance(11)  # until the next look is due
        until(lambda: held.is_settled)
        until(lambda: bool(world.losses(held)))
        losses = world.losses(held)

    run = world.run_of(held)
    assert stopped
    assert held.stop.reason == "lease_expired"
    assert [lost.detail for lost in losses] == ["it ended at 2026-01-01T00:00:30+00:00"]
    assert run == acquired.answer.manifest


def test_to_look_whether_a_lease_is_lost_does_not_renew_it(world: World) -> None:
    """Its handler was told to end: nothing may keep others from the run any longer."""
    held = world.held()
    before = world.run_of(held)
    world.clock.advance(26)
    held.ask_to_stop(Termination.LEASE_EXPIRED)

    held.beat()

    assert world.run_of(held) == before
    assert not held.is_settled
    assert held.renew_at - world.clock.monotonic() == 10
    complete(world, held)  # there are four seconds left
    assert world.run_of(held).steps["hold"].status == "COMPLETED"
    assert world.losses(held) == []


def test_a_lease_that_was_ended_is_found_lost_by_a_look(world: World) -> None:
    held = world.held()
    world.clock.advance(26)
    held.ask_to_stop(Termination.LEASE_EXPIRED)
    facts: dict[str, Any] = {"rules": world.engine.rules, "lease_id": held.fence.lease_id}
    end = partial(lifecycle.expire, **facts, holder_gone=True)
    run_id = held.manifest.run_id
    world.store.transact(run_ref(run_id), on_run(run_id, end))

    held.beat()

    (lost,) = world.losses(held)
    assert held.is_settled
    assert lost.detail == "the run has no lease, it is PENDING"


def test_a_checkpoint_that_is_refused_is_given_up_although_renewals_go_on(world: World) -> None:
    """The lease that was held at the first try would be over; the handler must hear of it."""
    held, clock = world.held(), world.clock
    context = StepContext(AttemptCalls(held))
    given_up_at: list[float] = []

    def keep() -> None:
        try:
            context.checkpoint(1, ["one"])
        except StoreUnavailableError:
            given_up_at.append(clock.monotonic())
        world.store.refused.release()  # who waits for the next refusal need not: there is none

    world.store.refuses = handler = threading.Thread(target=keep)
    handler.start()
    for _ in range(8):
        assert world.store.refused.acquire(timeout=60)
        if given_up_at:
            break
        clock.advance(10)
        held.beat()
    world.store.refuses = None  # where it was not given up, let it end
    handler.join(10)

    assert given_up_at
    assert 30 <= given_up_at[0] <= 40
    assert world.run_of(held).position.checkpoint is None
    assert not held.stop.is_requested


def test_a_handler_whose_run_cannot_be_read_any_more_is_to_stop(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can renew its lease."""
    with holding(world.engine, world.acquire()) as held:
        spoilt: Write[None] = Write(None, {"runId": 1})
        world.store.transact(run_ref(held.manifest.run_id), lambda _, __: spoilt)
        world.clock.advance(10)
        world.engine.leases.look()

    assert held.stop.reason is Termination.LEASE_EXPIRED
    assert "could not be renewed" in caplog.text


# --- a worker that ends ---


def test_a_renewal_on_its_way_ends_before_the_store_is_closed(world: World, tmp_path: Path) -> None:
    """To close a connection that is in use ends the process."""
    acquired = world.acquire()
    closing = threading.Thread(target=world.bundle.close)
    with holding(world.engine, acquired) as held:
        world.store.hangs = held.manifest.run_id
        world.clock.advance(10)
        assert world.store.hanging.wait(10)
        closing.start()
        closing.join(0.2)
        closed_too_soon = not closing.is_alive()
        world.store.may_continue.set()
        closing.join(10)

    store = SqliteDocuments(tmp_path / "runs.db", world.clock)
    found = store.get(run_ref(held.manifest.run_id))
    store.close()
    assert not closed_too_soon
    assert not closing.is_alive()
    assert found is not None
    assert found.document["position"]["heartbeatAt"] == "2026-01-01T00:00:10Z"


def test_an_attempt_that_begins_when_the_worker_ends_is_given_back_unrun(world: World) -> None:
    """Nothing would be left to stop a handler that ignores the signal."""
    run = start_run(world.engine, StartRequest("three", {"n": 1})).manifest
    shut_down(world.engine)

    outcome = execute_step(world.engine, Hint(run.run_id, 1))

    left = get_run(world.engine, run.run_id)
    assert outcome is Outcome.RELEASED
    assert CALLS[run.run_id, "add"] == 0
    assert (
        left.position.lease,
        left.position.attempts.interrupted,
        left.position.attempts.failed,
    ) == (None, 1, 0)
    assert left.position.dispatch.generation == 2


def test_a_worker_that_ends_releases_all_that_does_not_end_by_itself(world: World) -> None:
    """The store hangs for the first of them, and the last one begins meanwhile."""
    with (
        holding(world.engine, world.acquire()) as first,
        holding(world.engine, world.acquire()) as second,
    ):
        world.store.hangs = first.manifest.run_id
        ending = threading.Thread(target=partial(shut_down, world.engine, grace=0.2))
        ending.start()
        until(lambda: world.run_of(second).position.lease is None)
        with holding(world.engine, world.acquire()) as late:
            world.store.may_continue.set()
            ending.join(60)

    assert [world.run_of(one).position.lease for one in (first, second, late)] == [None] * 3
    assert second.stop.is_forced


def test_all_that_wait_for_the_end_of_an_attempt_are_woken(world: World) -> None:
    held, woken = world.held(), threading.Semaphore(0)

    def wait() -> None:
        assert held.wait_settled(60)
        woken.release()

    waiting = [threading.Thread(target=wait) for _ in range(4)]
    for thread in waiting:
        thread.start()
    assert not held.wait_settled(0.01)

    complete(world, held)

    for thread in waiting:
        assert woken.acquire(timeout=60)
        thread.join()
    assert held.wait_settled(0)


# --- a store that is away ---


class Away:
    """A store of values that is away; each try takes its time."""

    def __init__(self, world: World, takes: float, *, renews: Attempt | None = None) -> None:
        self.world = world
        self.takes = takes
        self.renews = renews
        self.tries = 0

    def __call__(self) -> None:
        self.tries += 1
        self.world.clock.advance(self.takes)
        if self.renews is not None:
            self.renews.beat()
        raise StoreUnavailableError(store="the test", problem="it is away")


def test_finished_work_waits_for_a_store_until_the_dispatch_deadline(world: World) -> None:
    """The step has 2 minutes; its lease of 30 s is renewed meanwhile."""
    held = world.held()
    away = Away(world, 20, renews=held)
    begun = world.clock.monotonic()

    with pytest.raises(StoreUnavailableError):
        held.insist(away)

    assert world.clock.monotonic() - begun == 100
    assert world.run_of(held).position.lease is not None
    complete(world, held)


def test_the_end_of_an_attempt_is_asked_of_a_store_until_the_dispatch_deadline(
    world: World,
) -> None:
    """Long after its lease, which nothing renews: the first of the tries may have been written."""
    held = world.held()
    begun = world.clock.monotonic()
    world.store.is_down, world.store.takes = True, 20

    with pytest.raises(StoreUnavailableError):
        complete(world, held)

    assert world.clock.monotonic() - begun >= 100


def test_where_the_lease_is_not_renewed_its_end_is_not_waited_for(world: World) -> None:
    """There must be time to say how the attempt ended."""
    held = world.held()
    begun = world.clock.monotonic()

    with pytest.raises(StoreUnavailableError):
        held.insist(Away(world, 8))

    assert world.clock.monotonic() - begun == 24
    complete(world, held)


def test_what_is_fetched_before_the_work_is_waited_for_as_long_as_a_lease_runs(
    world: World,
) -> None:
    held = world.held()
    begun = world.clock.monotonic()

    with pytest.raises(StoreUnavailableError):
        held.fetch(Away(world, 7, renews=held))

    assert world.clock.monotonic() - begun == 28


def test_a_sweep_leaves_an_attempt_to_its_own_process_while_that_waits_for_the_store(
    world: World,
) -> None:
    """It asks the store to end the attempt as it was; else it is one whose worker is gone."""
    with holding(world.engine, world.acquire()) as held:
        world.clock.advance(31)
        held.outage = StoreUnavailableError(store="the test", problem="it was away")
        left = sweep(world.engine)
        held.outage = None
        taken = sweep(world.engine)

    assert [(one.unattended, one.recovered) for one in (left, taken)] == [(1, 0), (0, 1)]


def test_an_attempt_that_is_to_stop_asks_once(world: World) -> None:
    held = world.held()
    held.ask_to_stop(Termination.INSTANCE_SHUTDOWN)
    away = Away(world, 0)

    with pytest.raises(StoreUnavailableError):
        held.insist(away)

    assert away.tries == 1


def test_a_stop_ends_the_wait_between_two_tries(world: World) -> None:
    held = world.held()
    away = Away(world, 0)
    timer = threading.Timer(0.2, held.ask_to_stop, [Termination.CANCELLED])
    timer.start()

    with pytest.raises(StoreUnavailableError):
        held.insist(away)

    timer.join()
    assert away.tries <= 3


def test_what_a_store_answers_in_the_end_is_returned(world: World) -> None:
    held = world.held()
    tries = iter([StoreUnavailableError(store="s", problem="p")] * 2)

    def third_time_lucky() -> str:
        for error in tries:
            raise error
        return "the value"

    assert held.insist(third_time_lucky) == "the value"


# --- how long its phases take ---


def test_the_phases_run_from_the_lease_to_the_first_tool_and_to_the_result(world: World) -> None:
    held = world.held()
    world.clock.advance(2)
    held.phases.note_entered(world.clock.monotonic())
    world.clock.advance(1.5)
    calls = AttemptCalls(held)
    calls.mark_bootstrap("search")
    world.clock.advance(4)
    calls.mark_bootstrap("a second one")
    calls.mark_execution()
    world.clock.advance(3)

    complete_with_notes(world, held)

    record = world.run_of(held).steps["hold"]
    assert (record.bootstrap_seconds, record.execution_seconds) == (3.5, 4.0)
    assert record.first_tool == "search"


@pytest.mark.parametrize("raises", [True, False], ids=["its handler raises", "it is killed"])
def test_an_attempt_that_is_ended_in_its_clean_up_took_until_then(
    world: World, *, raises: bool
) -> None:
    """Each would seem to be far below its limit, and the limit would stay where it ends all."""
    held = world.held()
    held.phases.note_entered(world.clock.monotonic())
    calls = AttemptCalls(held)
    calls.mark_bootstrap("search")
    world.clock.advance(4)
    calls.mark_execution()
    world.clock.advance(6)
    if raises:
        held.phases.note_returned(world.clock.monotonic(), has_result=False)

    held.settle(ending_of(held, Failed(ErrorRecord(type="X", code="x", message="m"))))

    (ended,) = world.run_of(held).steps["hold"].earlier_attempts or ()
    assert ended.execution_seconds == 10.0


def test_without_a_mark_the_bootstrap_ends_where_the_handler_is_entered(world: World) -> None:
    held = world.held()
    world.clock.advance(2)
    held.phases.note_entered(world.clock.monotonic())
    AttemptCalls(held).mark_execution()  # before any first tool: it does nothing
    world.clock.advance(5)

    complete_with_notes(world, held)

    record = world.run_of(held).steps["hold"]
    assert (record.bootstrap_seconds, record.execution_seconds) == (2.0, 5.0)
    assert record.first_tool is None


@pytest.mark.parametrize("at", [-1e12, -1.0, 1e12], ids=["long ago", "before", "to come"])
def test_a_process_that_lies_about_the_time_gives_none_outside_its_attempt(
    world: World, at: float
) -> None:
    held = world.held()
    world.clock.advance(2)
    held.phases.note_entered(world.clock.monotonic() + at)
    held.phases.mark_bootstrap("search\x1b[2J" + "x" * 500, world.clock.monotonic() + at)
    held.phases.mark_execution(world.clock.monotonic() + at)

    complete_with_notes(world, held)

    record = world.run_of(held).steps["hold"]
    assert record.bootstrap_seconds is not None
    assert record.execution_seconds is not None
    assert 0 <= record.bootstrap_seconds <= 2
    assert record.bootstrap_seconds + record.execution_seconds <= 2
    assert record.first_tool is not None
    assert len(record.first_tool) <= 128
    assert record.first_tool.isprintable()


def test_each_phase_is_marked_once_however_often_a_handler_says_so(world: World) -> None:
    """In a sandbox each mark is a message: 100,000 of them in a loop took its time limit."""
    marks = []

    class Counting(AttemptCalls):
        def mark_bootstrap(self, tool: str) -> None:
            marks.append(tool)

        def mark_execution(self) -> None:
            marks.append("a result")

    context = StepContext(Counting(world.held()))
    for _ in range(3):
        context.mark_bootstrap_complete("search")
        context.mark_execution_complete()

    assert marks == ["search", "a result"]


def test_the_first_attempt_of_a_process_is_cold(world: World) -> None:
    engine = world.engine
    with holding(engine, world.acquire()) as first:
        assert first.phases.is_cold
    with holding(engine, world.acquire()) as second:
        assert not second.phases.is_cold


def complete_with_notes(world: World, held: Attempt) -> None:
    held.phases.note_returned(world.clock.monotonic(), has_result=True)
    held.settle(ending_of(held, Finished('{"n":2}')))


@pytest.mark.parametrize(
    "name",
    ["", "  ", None, 5, "\ud800", "x" * 10_000, object()],
    ids=["empty", "blank", "none", "a number", "half a character", "long", "an object"],
)
def test_no_name_of_a_tool_ends_an_attempt(world: World, name: Any) -> None:
    """It is often what a model said, and only a measure."""
    held = world.held()
    held.phases.note_entered(world.clock.monotonic())
    StepContext(AttemptCalls(held)).mark_bootstrap_complete(name)
    world.clock.advance(1)

    complete_with_notes(world, held)

    record = world.run_of(held).steps["hold"]
    assert record.execution_seconds == 1.0
    assert len(record.first_tool or "") <= 128
