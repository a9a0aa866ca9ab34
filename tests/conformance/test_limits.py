"""Slots of a limit on each store: never more than it allows, and none that leaks."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from leasehold import Limit, PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.attempt.attempt import Attempt
from leasehold.attempt.settlement import ending_of
from leasehold.domain import lifecycle
from leasehold.domain.lifecycle import Operation
from leasehold.domain.limit import Bound
from leasehold.domain.lowered_limit import lowered_ref
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.domain.rate import rate_ref
from leasehold.domain.result import Finished, Waiting
from leasehold.domain.slots import Slot, SlotWait, slot_ref
from leasehold.domain.status import Outcome
from leasehold.domain.stored import Document, Ref, Write, replace
from leasehold.errors import LeaseLostError, StoreUnavailableError
from leasehold.ports.documents import Documents, Query
from leasehold.presentation.run_state import state_and_reason, step_line
from leasehold.services import slots
from leasehold.services.engine import Engine, change_run
from leasehold.services.execute_step import Hint, arrive, execute_step
from leasehold.services.explain_run import explain_run
from leasehold.services.idle_limits import forget_idle_limits
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import RunFilter, get_run, list_summaries
from leasehold.services.slots import Share
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.worlds.builders import at_position, let_pass
from tests.worlds.wrapped import Overtaken

pytestmark = [pytest.mark.one_store, pytest.mark.catalog(__name__, PIPELINE_MIN_BACKOFF_S="0.01")]

#: What handlers are let go by, and what they say once they work, by the name in their input.
GO: dict[str, threading.Event] = {}
AT_WORK: dict[str, threading.Event] = {}

ASKS = "tests.worlds.catalogs.limited_calls:asks"

TWO = Limit("model:{given.model}", at_once=2)
RATE = Limit("rate:{given.model}", per_minute=3)
TENANT = Limit("tenant:{labels.tenant}", at_once=3)


def work(ctx: StepContext, given: Any) -> Any:
    """Say that it works, and work until the test lets it go."""
    AT_WORK[given["name"]].set()
    if not GO[given["name"]].wait(10):
        raise TimeoutError(given["name"])
    return given["name"]


def quick(ctx: StepContext, given: Any) -> Any:
    return given["name"]


class Asked(BaseModel):
    """An input whose model has a default for what a limit counts."""

    name: str
    model: str
    size: str = "small"


def modelled(ctx: StepContext, given: Asked) -> str:
    with ctx.limit("call:{given.model}:{given.size}"):
        return given.size


def mistaken(ctx: StepContext, given: Any) -> Any:
    with ctx.limit("provider"):
        return given


def step(name: str, **fields: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=fields.pop("handler", f"{__name__}:{fields.pop('calls', name)}"),
        agent_timeout=timedelta(seconds=60),
        dispatch_deadline=timedelta(seconds=120),
        **{"isolation": "inline", **fields},
    )


STEPS = Registry(
    "dispatch",
    [
        step("work", limits=(TWO,)),
        step("quick", limits=(TWO,)),
        step("paced", calls="quick", limits=(RATE,)),
        step(
            "asks",
            handler=ASKS,
            limits=(Limit("provider:{given.model}", at_once=1, per_call=True),),
        ),
        step(
            "modelled",
            limits=(
                Limit("{given.model}:{given.size}", at_once=2),
                Limit("call:{given.model}:{given.size}", at_once=1, per_call=True),
            ),
        ),
        step("mistaken"),
        step(
            "scarce",
            calls="quick",
            limits=(
                Limit("a-rate:{given.model}", per_minute=3),
                Limit("b-slot:{given.model}", at_once=1),
            ),
        ),
        step("fair", calls="quick", limits=(TWO, TENANT)),
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=one.step_type, steps=(one.step_type,)) for one in STEPS]
)


@pytest.fixture
def bound(unique: str) -> Bound:
    return Bound(TWO, f"model:{unique}", is_rate=False, most=2)


class World:
    """Runs of one model, and workers that are held up in their handlers."""

    def __init__(self, engine: Engine, model: str, pool: ThreadPoolExecutor) -> None:
        self.engine, self.model, self._pool = engine, model, pool
        self._works: dict[str, Future[Outcome]] = {}

    def start(self, pipeline: str = "work", **request: Any) -> str:
        name = f"{self.model}-{len(GO)}"
        GO[name], AT_WORK[name] = threading.Event(), threading.Event()
        given = {"model": self.model, "name": name}
        return start_run(self.engine, StartRequest(pipeline, given, **request)).manifest.run_id

    def run(self, run_id: str) -> Manifest:
        return get_run(self.engine, run_id)

    def hint(self, run_id: str) -> Outcome:
        generation = self.run(run_id).position.dispatch.generation
        return execute_step(self.engine, Hint(run_id, generation))

    def hold(self, run_id: str) -> None:
        """Have a worker take the run, and wait until its handler is at work."""
        self._works[run_id] = self._pool.submit(self.hint, run_id)
        assert AT_WORK[self.name_of(run_id)].wait(10)

    def let_go(self, run_id: str) -> Outcome:
        GO[self.name_of(run_id)].set()
        return self._works.pop(run_id).result(10)

    def name_of(self, run_id: str) -> str:
        given = self.run(run_id).input
        assert given is not None
        return str(json.loads(given)["name"])

    def waits(self, run_id: str) -> bool:
        return self.run(run_id).awaits_slot


@pytest.fixture
def world(engine: Engine, unique: str) -> Iterator[World]:
    with ThreadPoolExecutor(4) as pool:
        world = World(engine, unique, pool)
        try:
            yield world
        finally:
            for go in GO.values():
                go.set()


def test_a_run_that_comes_too_late_waits_without_a_lease_and_is_called(world: World) -> None:
    first, second, third = world.start(), world.start(), world.start("quick")
    world.hold(first)
    world.hold(second)

    outcome = world.hint(third)

    waiting = world.run(third)
    assert outcome == "awaits_slot"
    assert waiting.position.lease is None
    assert waiting.alarm_at is not None
    assert waiting.position.attempt == 1
    assert world.hint(third) == "awaits_slot"  # a hint that comes again gets no lease

    world.let_go(first)

    assert not world.waits(third)
    assert world.hint(third) == "completed"
    world.let_go(second)


@pytest.mark.each_store
def test_no_more_than_the_limit_are_at_work_and_why_says_who_is(
    world: World, engine: Engine
) -> None:
    first, second, third, fourth = (world.start() for _ in range(4))
    world.hold(first)
    world.hold(second)
    assert [world.hint(third), world.hint(fourth)] == ["awaits_slot", "awaits_slot"]

    run = world.run(fourth)
    slot = f"waits for a slot of limit model:{world.model} (2 at once)"
    assert step_line(run, "work", run.updated_at, worker="w").words == slot
    (listed,) = list_summaries(engine, RunFilter(id_prefix=fourth)).runs
    state = state_and_reason(listed).text
    assert state == f"PENDING waits for limit model:{world.model} at once"
    words = explain_run(engine, fourth, is_gone=lambda _: False).explanation.words

    assert f"waits for a slot of limit model:{world.model} (2 at once)" in words
    assert "1 run is ahead of it in the line." in words
    assert f"run {first} (step work)" in words
    assert f"run {second} (step work)" in words
    for each in (first, second):
        world.let_go(each)


def test_the_classes_go_first_then_each_tenant_in_turn_then_the_oldest(
    world: World, engine: Engine, bound: Bound
) -> None:
    first, second = world.start(), world.start()
    world.hold(first)
    world.hold(second)
    names = {}
    for name, tenant, priority in (
        ("old a", "a", "normal"),
        ("second a", "a", "normal"),
        ("old b", "b", "normal"),
        ("second b", "b", "normal"),
        ("low", "a", "low"),
        ("high", "a", "high"),
    ):
        labels = {"tenant": f"{world.model}-{tenant}"}
        run_id = world.start("fair", labels=labels, priority=priority)
        assert world.hint(run_id) == "awaits_slot"
        names[run_id] = name

    order, after = [], ""
    while waiting := {run_id for run_id in names if world.waits(run_id)}:
        assert slots.call_next(engine, bound, after=after)
        (called,) = [run_id for run_id in waiting if not world.waits(run_id)]
        wait = world.run(called).position.slot_wait
        assert wait is not None
        order.append(names[called])
        after = wait.group

    assert order == ["high", "old b", "old a", "second b", "second a", "low"]
    for each in (first, second):
        world.let_go(each)


def stand_in_line(engine: Engine, bound: Bound, *runs: str) -> None:
    """Have the runs wait, as if all slots had been taken a moment ago."""
    for run_id in runs:
        attempt = engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, 1)))
        attempt.settle(ending_of(attempt, Waiting(bound)))


@pytest.mark.parametrize(
    ("priority", "outcome"), [("normal", "awaits_slot"), ("high", "completed")]
)
def test_a_run_that_comes_anew_waits_behind_those_of_its_class(
    world: World, engine: Engine, bound: Bound, priority: str, outcome: str
) -> None:
    """All slots are free by then, and the first in the line has not been called so far."""
    first, anew = world.start("quick"), world.start("quick", priority=priority)
    stand_in_line(engine, bound, first)

    assert world.hint(anew) == outcome


@pytest.mark.each_store
def test_as_many_as_end_at_one_moment_each_call_another_run(
    world: World, engine: Engine, bound: Bound
) -> None:
    """All of them ask for the first in the line, and all but one find it called by then."""
    runs = [world.start("quick") for _ in range(12)]
    stand_in_line(engine, bound, *runs)

    with ThreadPoolExecutor(len(runs)) as pool:
        called = list(pool.map(lambda _: slots.call_next(engine, bound), runs))

    assert called == [True] * len(runs)
    assert [world.waits(run_id) for run_id in runs] == [False] * len(runs)


def test_a_run_that_cannot_be_read_keeps_no_other_from_its_slot(
    world: World, engine: Engine, bound: Bound, documents: Documents
) -> None:
    first, second = world.start("quick"), world.start("quick")
    stand_in_line(engine, bound, first, second)
    kept = to_document(world.run(first))
    documents.transact(run_ref(first), lambda *_: Write(None, {**kept, "status": "ASLEEP"}))

    assert slots.call_next(engine, bound)

    assert not world.waits(second)
    assert not slots.call_next(engine, bound)
    documents.transact(run_ref(first), lambda *_: Write(None, kept))


def test_a_worker_that_is_killed_behind_its_settlement_leaves_a_run_that_is_called(
    world: World, engine: Engine, bound: Bound
) -> None:
    """It was called in the commit before: its task is lost, and the sweep looks for that."""
    run_id, waiting = world.start("quick"), world.start("quick")
    stand_in_line(engine, bound, run_id)
    assert slots.call_next(engine, bound)
    arrived = arrive(engine, Hint(run_id, world.run(run_id).position.dispatch.generation))
    attempt = engine.leases.attempt_of(engine, arrived)
    assert slots.take(engine, attempt, bound, "")
    stand_in_line(engine, bound, waiting)

    slots.call_ahead(engine, attempt)
    attempt.settle(ending_of(attempt, Finished('"done"')))  # and here it is killed

    run = world.run(waiting)
    assert not world.waits(waiting)
    assert run.alarm_at is not None
    assert run.alarm_at - run.updated_at <= timedelta(seconds=60)
    assert world.hint(waiting) == "completed"


@pytest.mark.each_store
def test_a_slot_that_came_free_while_a_run_stood_in_line_is_not_lost(
    world: World, engine: Engine, bound: Bound
) -> None:
    """The worker that freed it saw no run there: the run looks once more when it stands in line."""
    run_id = world.start("quick")
    attempt = engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, 1)))
    ending = ending_of(attempt, Waiting(bound))  # as if both slots had been taken a moment ago
    engine.publish_or_leave(attempt.settle(ending).answer)
    assert world.waits(run_id)

    slots.pass_on(engine, attempt)

    assert not world.waits(run_id)
    assert world.hint(run_id) == "completed"


def test_a_store_that_is_away_for_a_call_costs_the_attempt_nothing(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is settled by then; its worker would lose the lease of the next step, and its answer."""

    def away(*_: object, **__: object) -> bool:
        raise StoreUnavailableError(store="store", problem="it is away")

    monkeypatch.setattr(slots, "call_next", away)

    assert world.hint(world.start("quick")) == "completed"


def test_a_slot_whose_giving_back_failed_is_passed_on_at_the_end_of_its_attempt(
    world: World, engine: Engine, bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = engine.leases.attempt_of(engine, arrive(engine, Hint(world.start(), 1)))
    held = slots.take(engine, attempt, bound, "")
    waiting = [world.start("quick") for _ in range(2)]
    other = engine.leases.attempt_of(engine, arrive(engine, Hint(world.start(), 1)))
    assert held
    assert slots.take(engine, other, bound, "")
    assert world.hint(waiting[0]) == "awaits_slot"

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError(store="store", problem="it is away")

    with monkeypatch.context() as patch:
        patch.setattr(type(engine.documents), "transact", away)
        with pytest.raises(StoreUnavailableError):
            slots.give_back(engine, attempt, held[0])
    engine.publish_or_leave(attempt.settle(ending_of(attempt, Finished("null"))).answer)
    slots.pass_on(engine, attempt)

    assert not world.waits(waiting[0])


@pytest.mark.each_store
def test_the_sweep_calls_who_was_not_called(
    world: World, engine: Engine, bound: Bound, documents: Documents
) -> None:
    """A worker was killed between its settlement and its call."""
    run_id = world.start("quick")
    attempt = engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, 1)))
    attempt.settle(ending_of(attempt, Waiting(bound)))
    run = world.run(run_id)
    wait, alarm_at = run.position.slot_wait, run.alarm_at
    assert wait is not None
    assert alarm_at is not None
    assert alarm_at - run.updated_at == timedelta(minutes=1)
    due = replace(run.position, slot_wait=replace(wait, look_at=run.updated_at))
    document = to_document(replace(run, position=due, alarm_at=run.updated_at))
    documents.transact(run_ref(run_id), lambda *_: Write(None, document))

    sweep(engine, among={run_id})

    assert not world.waits(run_id)
    assert world.hint(run_id) == "completed"


@pytest.mark.each_store
def test_a_sweep_looks_at_each_line_however_seldom_its_runs_are_looked_at(
    world: World, engine: Engine, bound: Bound
) -> None:
    """A worker that was killed behind its settlement leaves a slot idle until then."""
    other = bound._replace(key=f"{bound.key} too")
    first, second, late = (world.start("quick") for _ in range(3))
    stand_in_line(engine, bound, first)
    stand_in_line(engine, other, second)

    sweep(engine, among=())

    assert (world.waits(first), world.waits(second)) == (False, False)
    stand_in_line(engine, bound, late)
    sweep(engine, among=())
    assert world.waits(late), "it reads no line twice within half a sweep"
    engine.lines.look_at -= 30
    sweep(engine, among=())
    assert not world.waits(late)


@pytest.mark.parametrize("found", [0, 1], ids=["at once", "behind the first line"])
def test_a_store_that_is_away_during_the_look_at_lines_puts_that_off_and_stops_no_sweep(
    world: World, engine: Engine, bound: Bound, monkeypatch: pytest.MonkeyPatch, found: int
) -> None:
    """After a deploy the index of the lines may still be built: then only that look fails."""
    other = bound._replace(key=f"{bound.key} too")
    first, second = world.start("quick"), world.start("quick")
    stand_in_line(engine, bound, first)
    stand_in_line(engine, other, second)
    engine.lines.behind = bound.name
    query, looks = engine.documents.query, 0

    def away(asked: Query) -> Any:
        nonlocal looks
        looks += asked.order_by == "waitsIn"
        if asked.order_by == "waitsIn" and looks > found:
            raise StoreUnavailableError(store="it", problem="the index is being built")
        return query(asked)

    with monkeypatch.context() as patch:
        patch.setattr(engine.documents, "query", away)
        result = sweep(engine, among=())

    assert (result.failure, looks) == (None, found + 1)
    assert [world.waits(first), world.waits(second)] == [not found, True]
    sweep(engine, among=())
    assert [world.waits(first), world.waits(second)] == [False, False]


def test_a_run_without_a_value_for_its_key_blocks_and_heals(world: World) -> None:
    run_id = world.start("fair")  # it has no label `tenant`

    outcome = world.hint(run_id)

    run = world.run(run_id)
    assert outcome == "blocked"
    assert run.block is not None
    assert (run.block.code, run.block.heals) == ("limit_unusable", True)
    assert "labels.tenant is missing" in run.block.finding
    assert run.position.attempts.failed == 0


def test_a_field_that_is_not_given_counts_with_its_default(
    world: World, engine: Engine, unique: str
) -> None:
    run_id = world.start("modelled")

    outcome = world.hint(run_id)

    assert outcome == "completed"
    taken = [engine.documents.get(slot_ref(f"{unique}:small", number)) for number in range(2)]
    assert [Slot.model_validate(one.document).run_id for one in taken if one] == [run_id]


@pytest.mark.parametrize(
    ("pipeline", "key", "document"),
    [
        ("quick", "model:{}", {"key": 7, "runId": {}}),
        ("paced", "rate:{}", {"key": "rate", "granted": "all"}),
    ],
)
def test_a_document_of_a_limit_that_cannot_be_read_blocks_the_run_and_heals(
    world: World,
    documents: Documents,
    unique: str,
    pipeline: str,
    key: str,
    document: dict[str, Any],
) -> None:
    """A person edited it, or a newer version wrote it: the attempts of a run are not at fault."""
    key = key.format(unique)
    refs = [slot_ref(key, number) for number in range(2)] + [rate_ref(key, 0)]
    for ref in refs:
        documents.transact(ref, lambda *_: Write(None, document))
    run_id = world.start(pipeline)

    outcome = world.hint(run_id)
    for ref in refs:
        documents.delete(ref)

    run = world.run(run_id)
    assert outcome == "blocked"
    assert run.block is not None
    assert (run.block.code, run.block.heals) == ("limit_unusable", True)
    operate(world.engine, run_id, OperationRequest(Operation.RETRY, actor="ada"))
    assert world.hint(run_id) == "completed"


@pytest.mark.parametrize("act", ["pause", "cancel"])
def test_a_run_that_a_person_takes_out_of_the_line_is_not_called(
    world: World, engine: Engine, act: str
) -> None:
    first, second, third = world.start(), world.start(), world.start("quick")
    world.hold(first)
    world.hold(second)
    world.hint(third)

    operate(engine, third, OperationRequest(Operation(act), actor="ada"))

    run = world.run(third)
    assert (run.waits_in, run.line) == (None, None)
    for each in (first, second):
        world.let_go(each)
    if act == "pause":
        operate(engine, third, OperationRequest(Operation.RESUME, actor="ada"))
        assert world.hint(third) == "completed"


@pytest.mark.each_store
def test_the_leaked_slot(world: World, engine: Engine, bound: Bound) -> None:
    """A worker that was killed frees its slot with its lease: it has nothing to give back."""
    dead, second, third = world.start(), world.start(), world.start("quick")
    hint = Hint(dead, 1)
    acquired = arrive(engine, hint)
    attempt = engine.leases.attempt_of(engine, acquired)
    assert slots.take(engine, attempt, bound, "")
    world.hold(second)
    assert world.hint(third) == "awaits_slot"

    lease = world.run(dead).position.lease
    assert lease is not None
    end = partial(lifecycle.expire, rules=engine.rules, lease_id=lease.lease_id, holder_gone=True)
    change_run(engine, dead, end)
    slots.pass_on_of(engine, world.run(dead))

    assert not world.waits(third)
    assert world.hint(third) == "completed"
    world.let_go(second)


def left_idle(engine: Engine, ref: Ref, field: str, value: Any) -> None:
    """Have a document of a limit be as it would be a day later."""

    def earlier(stored: Document | None, _: datetime) -> Write[None]:
        return Write(None, {**(stored or {}), field: value})

    engine.documents.transact(ref, earlier)


def forget(engine: Engine) -> None:
    """Have one process look at all that limits have left."""
    engine.lines.forget_at = now = engine.clock.monotonic()
    while engine.lines.forget_at == now:
        sweep(engine)


@pytest.mark.each_store
def test_what_a_limit_leaves_is_deleted_once_it_is_idle_for_a_day(
    world: World, engine: Engine, bound: Bound
) -> None:
    """A document stayed for each tenant that ever was, for each of its slots."""
    yesterday = engine.clock.now() - timedelta(days=1, minutes=1)
    span = int(yesterday.timestamp()) // 5
    used, given_back, paced = world.start("quick"), world.start("asks"), world.start("paced")
    for run_id in (used, given_back, paced):
        assert world.hint(run_id) == "completed"
    refs = {
        "slot": next(
            ref for n in range(2) if engine.documents.get(ref := slot_ref(bound.key, n)) is not None
        ),
        "given back": slot_ref(f"provider:{world.model}", 0),
        "rate": rate_ref(f"rate:{world.model}", 0),
        "lowered": lowered_ref(bound.key),
    }
    lowest = {"key": bound.key, "share": 0.5, "loweredAt": yesterday, "growsFrom": yesterday}
    engine.documents.transact(refs["lowered"], lambda *_: Write(None, lowest))

    forget(engine)

    assert [engine.documents.get(refs[one]) is None for one in refs] == [False, False, False, True]
    left_idle(engine, refs["slot"], "takenAt", yesterday)
    left_idle(engine, refs["given back"], "takenAt", yesterday)
    left_idle(engine, refs["rate"], "granted", [{"span": span, "count": 1}])
    forget(engine)
    assert [engine.documents.get(refs[one]) for one in refs] == [None] * 4
    for pipeline in ("quick", "asks", "paced"):
        assert world.hint(world.start(pipeline)) == "completed"


def test_a_slot_that_is_held_for_days_is_kept_and_one_that_cannot_be_read(
    world: World, engine: Engine, bound: Bound
) -> None:
    yesterday = engine.clock.now() - timedelta(days=1, minutes=1)
    holder = world.start()
    world.hold(holder)
    taken = [slot_ref(bound.key, number) for number in range(2)]
    held = next(ref for ref in taken if engine.documents.get(ref) is not None)
    edited = slot_ref(f"edited:{world.model}", 0)
    left_idle(engine, held, "takenAt", yesterday)
    left_idle(engine, edited, "takenAt", "yesterday")

    forget(engine)

    assert engine.documents.get(held) is not None
    assert engine.documents.get(edited) is not None
    assert world.let_go(holder) == "completed"


def test_a_process_looks_for_idle_limits_an_hour_after_its_beginning_and_then_once_a_day(
    engine: Engine,
) -> None:
    """It reads all of them: so not with each sweep, and not where each sweep is a process."""
    now = engine.clock.monotonic()

    sweep(engine)

    first = engine.lines.forget_at
    assert first is not None
    assert 3600 <= first - now < 3700
    forget(engine)
    assert engine.lines.forget_at - now >= 86_400


def test_a_store_that_is_away_puts_the_look_at_idle_limits_off(
    world: World, engine: Engine, bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError(store="it", problem="away")

    refs = [slot_ref(f"{bound.key}-{number}", 0) for number in range(3)]
    for ref in refs:
        left_idle(engine, ref, "key", bound.key)
    with monkeypatch.context() as patch:
        patch.setattr(engine.documents, "delete", away)
        engine.lines.forget_at = engine.clock.monotonic()
        sweep(engine)
    assert all(map(engine.documents.get, refs))

    forget(engine)

    assert not any(map(engine.documents.get, refs))


@pytest.mark.each_store
def test_the_slot_released_twice(world: World, engine: Engine, bound: Bound) -> None:
    """A worker that comes back frees no slot that another has by now."""
    run_id = world.start()
    zombie = engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, 1)))
    assert slots.take(engine, zombie, bound, "")
    assert slots.take(engine, zombie, bound._replace(key=f"other:{world.model}"), "")
    held, of_other_key = zombie.slots or ()
    slots.give_back(engine, zombie, held)
    assert zombie.slots == [of_other_key]  # a handler may take and free one a thousand times
    other = world.start()
    taker = engine.leases.attempt_of(engine, arrive(engine, Hint(other, 1)))
    first = bound._replace(most=held.number + 1)
    assert slots.take_slot(engine, taker, first, "", held.number) == held.number

    slots.give_back(engine, zombie, held)

    found = engine.documents.get(slot_ref(bound.key, held.number))
    assert found is not None
    assert Slot.model_validate(found.document).run_id == other


def test_a_slot_is_free_the_moment_its_lease_runs_out(
    world: World, engine: Engine, bound: Bound
) -> None:
    """Its worker fell silent, and no sweep has come by: the run still names that lease."""
    silent, second, third = (
        engine.leases.attempt_of(engine, arrive(engine, Hint(world.start(), 1))) for _ in range(3)
    )
    assert slots.take(engine, silent, bound, "")
    assert slots.take(engine, second, bound, "")
    assert slots.take(engine, third, bound, "") is None

    let_pass(engine.documents, silent.name.run_id, timedelta(minutes=5))

    assert slots.take(engine, third, bound, "")
    assert world.run(silent.name.run_id).position.lease is not None


def test_a_run_that_was_called_for_one_limit_overtakes_no_line_of_another(
    world: World, engine: Engine, bound: Bound
) -> None:
    holder, other = (
        engine.leases.attempt_of(engine, arrive(engine, Hint(world.start(), 1))) for _ in range(2)
    )
    for attempt in (holder, other):
        assert slots.take(engine, attempt, bound, "")
    assert world.hint(world.start("quick")) == "awaits_slot"
    for attempt in (holder, other):
        let_pass(engine.documents, attempt.name.run_id, timedelta(minutes=5))
    called = engine.leases.attempt_of(engine, arrive(engine, Hint(world.start(), 1)))
    now = engine.clock.now()
    wait = SlotWait(limit="b", key="b", most=1, since=now, look_at=now, called=True)
    called.manifest = at_position(called.manifest, slot_wait=wait)

    assert slots.take(engine, called, bound, "") is None


def test_a_slot_whose_run_was_purged_is_free(world: World, engine: Engine, bound: Bound) -> None:
    only = bound._replace(most=1)
    gone, other = (
        engine.leases.attempt_of(engine, arrive(engine, Hint(world.start(), 1))) for _ in range(2)
    )
    assert slots.take(engine, gone, only, "")
    engine.documents.delete(run_ref(gone.name.run_id))

    assert slots.take(engine, other, only, "")


def test_a_slot_that_is_taken_as_it_is_forgotten_is_kept(
    world: World, engine: Engine, bound: Bound
) -> None:
    """Without its document a third one would find it free, and be at work beside the limit."""
    only = bound._replace(most=1)
    before, taker = (
        engine.leases.attempt_of(engine, arrive(engine, Hint(world.start(), 1))) for _ in range(2)
    )
    assert slots.take(engine, before, only, "")
    let_pass(engine.documents, before.name.run_id, timedelta(minutes=5))
    forget(engine)  # what other tests have left
    ref = slot_ref(only.key, 0)
    left_idle(engine, ref, "takenAt", engine.clock.now() - timedelta(days=2))
    engine.lines.forget_at = engine.clock.monotonic()
    late = Overtaken(engine.documents, "runs", lambda: slots.take(engine, taker, only, ""))

    forget_idle_limits(replace(engine, documents=late), math.inf)

    found = engine.documents.get(ref)
    assert found is not None
    assert Slot.model_validate(found.document).run_id == taker.name.run_id


@pytest.mark.each_store
@pytest.mark.parametrize("was_used", [False, True])
def test_of_two_that_find_the_same_slot_free_one_has_it(
    world: World, engine: Engine, bound: Bound, was_used: bool
) -> None:
    """Else both would be at work in it: one more than the limit."""
    slow, fast = (
        engine.leases.attempt_of(engine, arrive(engine, Hint(world.start(), 1))) for _ in range(2)
    )
    only = bound._replace(most=1)
    if was_used:
        (held,) = slots.take(engine, slow, only, "") or ()
        slots.give_back(engine, slow, held)
    taken: list[object] = []

    def take() -> None:
        taken.append(slots.take(engine, fast, only, ""))

    late = Overtaken(engine.documents, "slots", take)

    assert slots.take(replace(engine, documents=late), slow, only, "") is None
    assert taken[0] is not None


def test_a_worker_whose_lease_may_be_over_takes_no_slot(world: World, engine: Engine) -> None:
    """Its slot would not count, and its call would be one beside those of the limit."""
    run_id = world.start("asks")
    zombie = engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, 1)))
    given = world.run(run_id).input or ""
    limits = slots.HandlerLimits(engine, zombie, STEPS["asks"], given)
    zombie.ends_at = engine.clock.monotonic()

    with pytest.raises(LeaseLostError):
        limits.take("provider:{given.model}")
    assert not zombie.slots


def test_a_slot_that_comes_when_its_lease_is_over_lets_no_call_begin(
    world: World, engine: Engine
) -> None:
    """The store was slow, or its file locked: who comes now may take the slot as well."""
    run_id = world.start("asks")
    zombie = engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, 1)))

    def let_it_be_over() -> None:
        zombie.ends_at = engine.clock.monotonic()

    slow = Overtaken(engine.documents, "slots", let_it_be_over, before=1)
    given = world.run(run_id).input or ""
    limits = slots.HandlerLimits(replace(engine, documents=slow), zombie, STEPS["asks"], given)

    with pytest.raises(LeaseLostError):
        limits.take("provider:{given.model}")


@pytest.mark.each_store
def test_no_more_than_the_rate_begin_and_the_first_that_waits_is_called_for_its_turn(
    world: World, engine: Engine
) -> None:
    runs = [world.start("paced") for _ in range(6)]

    outcomes = [world.hint(run_id) for run_id in runs]

    assert outcomes == ["completed"] * 3 + ["awaits_slot"] * 3
    leader, *others = map(world.run, runs[3:])
    assert leader.position.slot_wait is not None
    assert (leader.awaits_slot, leader.position.slot_wait.leads) == (False, True)
    wait = leader.position.dispatch.not_before - leader.updated_at
    assert timedelta(seconds=50) < wait <= timedelta(seconds=66)
    assert [run.awaits_slot for run in others] == [True, True]
    words = explain_run(engine, runs[5], is_gone=lambda _: False).explanation.words
    assert f"its turn in limit rate:{world.model} (3 a minute)" in words
    assert "1 run is ahead of it" in words


def test_the_run_that_leads_calls_the_others_at_its_turn(
    world: World, engine: Engine, documents: Documents
) -> None:
    runs = [world.start("paced") for _ in range(6)]
    for run_id in runs:
        world.hint(run_id)
    engine.shares.clear()
    ref = rate_ref(f"rate:{world.model}", 0)
    later = {"key": f"rate:{world.model}"}  # a minute passes: nothing was handed out lately
    documents.transact(ref, lambda *_: Write(None, later))
    leader = world.run(runs[3])
    due = replace(leader.position.dispatch, not_before=leader.updated_at)
    document = to_document(replace(leader, position=replace(leader.position, dispatch=due)))
    documents.transact(run_ref(runs[3]), lambda *_: Write(None, document))

    assert world.hint(runs[3]) == "completed"

    assert [world.waits(run_id) for run_id in runs[4:]] == [False, False]
    assert [world.hint(run_id) for run_id in runs[4:]] == ["completed", "completed"]


def test_a_process_spends_its_share_without_a_read_or_a_write(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = Bound(RATE, f"rate:{world.model}", is_rate=True, most=60)
    engine.shares[bound.name] = Share(2, engine.clock.monotonic() + 5, 0, has_line=False)
    attempt = engine.leases.attempt_of(engine, arrive(engine, Hint(world.start("paced"), 1)))
    asked: list[str] = []
    for name in ("transact", "get", "query"):
        real = getattr(type(engine.documents), name)
        monkeypatch.setattr(
            type(engine.documents),
            name,
            lambda *args, real=real, name=name, **how: asked.append(name) or real(*args, **how),
        )

    assert [slots.take(engine, attempt, bound, "") for _ in range(2)] == [(), ()]
    assert asked == []
    assert slots.take(engine, attempt, bound, "") == ()
    assert asked


def test_a_run_that_waits_for_a_slot_uses_up_no_turn_of_a_rate(
    world: World, engine: Engine
) -> None:
    """A turn cannot be given back: those that wait would leave none for those that could begin."""
    holder, run_id = world.start("quick"), world.start("scarce")
    attempt = engine.leases.attempt_of(engine, arrive(engine, Hint(holder, 1)))
    limit = Limit("b-slot:{given.model}", at_once=1)
    bound = Bound(limit, f"b-slot:{world.model}", is_rate=False, most=1)
    assert slots.take(engine, attempt, bound, "")

    assert world.hint(run_id) == "awaits_slot"

    assert engine.documents.get(rate_ref(f"a-rate:{world.model}", 0)) is None


def test_turns_that_a_process_took_while_runs_waited_are_for_those(
    world: World, engine: Engine
) -> None:
    """A run that comes anew would go past all of them."""
    bound = Bound(RATE, f"rate:{world.model}", is_rate=True, most=3)
    waiting, anew = world.start("paced"), world.start("paced")
    stand_in_line(engine, bound, waiting)
    engine.shares[bound.name] = Share(2, engine.clock.monotonic() + 60, 0, has_line=True)

    assert world.hint(anew) == "awaits_slot"


def holds_the_only_slot(world: World, engine: Engine, holder: str) -> tuple[Attempt, Bound, Any]:
    """Have an attempt of this run take the slot that handlers of "asks" ask for."""
    attempt = engine.leases.attempt_of(engine, arrive(engine, Hint(holder, 1)))
    limit = Limit("provider:{given.model}", at_once=1, per_call=True)
    bound = Bound(limit, f"provider:{world.model}", is_rate=False, most=1)
    (held,) = slots.take(engine, attempt, bound, "") or ()
    return attempt, bound, held


def test_a_run_that_is_called_for_a_limit_of_its_handler_has_it_before_that_begins(
    world: World, engine: Engine
) -> None:
    """Until its handler asks for the slot, another run could take it."""
    holder, run_id = world.start("quick"), world.start("asks")
    attempt, bound, held = holds_the_only_slot(world, engine, holder)
    assert world.hint(run_id) == "awaits_slot"
    slots.give_back(engine, attempt, held)
    called = world.run(run_id)

    hint = Hint(run_id, called.position.dispatch.generation)
    again = engine.leases.attempt_of(engine, arrive(engine, hint))
    slots.take_slots(engine, again, engine.catalog.steps["asks"], called.input or "")

    found = engine.documents.get(slot_ref(bound.key, 0))
    assert found is not None
    assert Slot.model_validate(found.document).run_id == run_id


def test_a_handler_ends_where_its_limit_has_no_room_and_has_the_slot_when_it_is_called(
    world: World, engine: Engine
) -> None:
    holder, run_id = world.start("quick"), world.start("asks")
    attempt, bound, held = holds_the_only_slot(world, engine, holder)

    outcome = world.hint(run_id)
    assert outcome == "awaits_slot"
    waiting = world.run(run_id)
    assert waiting.position.lease is None
    slots.give_back(engine, attempt, held)

    assert not world.waits(run_id)
    assert world.hint(run_id) == "completed"
    calls = world.run(run_id).steps["asks"].calls
    assert calls is not None
    assert (calls.made, calls.spared) == (2, 1)
    found = engine.documents.get(slot_ref(bound.key, 0))
    assert found is not None
    assert Slot.model_validate(found.document).run_id == "", "it is free after the block"


def test_a_limit_that_the_step_does_not_declare_blocks_the_run(world: World) -> None:
    run_id = world.start("mistaken")

    assert world.hint(run_id) == "blocked"

    block = world.run(run_id).block
    assert block is not None
    assert block.heals
    assert "step 'mistaken' has no Limit('provider', per_call=True); known: none" in block.finding


def test_a_process_forgets_the_shares_of_many_keys_once_they_are_over(
    world: World, engine: Engine
) -> None:
    over = engine.clock.monotonic() - 1
    engine.shares.update({f"{n}": Share(1, over, 0, has_line=False) for n in range(2000)})

    assert world.hint(world.start("paced")) == "completed"

    assert list(engine.shares) == [f"rate:{world.model} a minute"]
