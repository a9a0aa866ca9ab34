"""Limits that adapt, on each store: a 429 with Retry-After halves one, once, and it grows again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from leasehold import AgentClientError, Limit, PipelineEntry, Registry, StepContext
from leasehold.domain.limit import Bound
from leasehold.domain.lowered_limit import LoweredLimit, lowered_ref
from leasehold.domain.manifest import to_document
from leasehold.domain.stored import Ref, Write, make, replace
from leasehold.domain.trace import TraceEvent
from leasehold.ports.documents import Documents, Query
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, arrive
from leasehold.services.explain_run import explain_run
from leasehold.services.lowered_limits import in_force, lower, lowered_now
from leasehold.services.read_runs import timeline_of
from tests.conformance.test_limits import AT_WORK, GO, World, step

pytestmark = [pytest.mark.one_store, pytest.mark.catalog(__name__)]

FOUR = Limit("model:{given.model}", at_once=4, adaptive=True)
RATE = Limit("rate:{given.model}", per_minute=4, adaptive=True)
CALL = Limit("call:{given.model}", at_once=4, per_call=True, adaptive=True)
FIXED = Limit("fixed:{given.model}", at_once=4)
WAIT_S = 30.0


def refused(ctx: StepContext, given: Any) -> Any:
    """Say that it works, wait for the test, and be refused by the provider."""
    AT_WORK[given["name"]].set()
    if not GO[given["name"]].wait(10):
        raise TimeoutError(given["name"])
    ask()


def ask() -> None:
    raise AgentClientError("busy", code="rate_limited", retry_after=WAIT_S)


def refused_in_a_block(ctx: StepContext, given: Any) -> Any:
    """Be refused in a block, and do something else."""
    try:
        with ctx.limit(CALL.key):
            ask()
    except AgentClientError:
        return "from the cache"


def quick(ctx: StepContext, given: Any) -> Any:
    return given["name"]


def here(name: str, calls: str, *limits: Limit) -> Any:
    return step(name, handler=f"{__name__}:{calls}", limits=limits)


STEPS = Registry(
    "dispatch",
    [
        here("refused", "refused", FOUR),
        step("work", handler="tests.conformance.test_limits:work", limits=(FOUR,)),
        here("quick", "quick", FOUR),
        here("paced", "refused", RATE),
        here("block", "refused_in_a_block", CALL),
        here("fixed", "refused", FIXED),
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=one.step_type, steps=(one.step_type,)) for one in STEPS]
)


@pytest.fixture
def world(engine: Engine, unique: str) -> Iterator[World]:
    with ThreadPoolExecutor(4) as pool:
        world = World(engine, unique, pool)
        try:
            yield world
        finally:
            for go in GO.values():
                go.set()


@pytest.fixture
def bound(unique: str) -> Bound:
    return Bound(FOUR, f"model:{unique}", is_rate=False, most=4)


def lowerings(engine: Engine, *runs: str) -> list[TraceEvent]:
    found = [one for run_id in runs for one in timeline_of(engine, run_id)]
    return [one for one in found if one.type == "limit_lowered"]


def let_time_pass(engine: Engine, key: str, passed: timedelta) -> None:
    """Move the last halving of a key into the past."""

    def moved(stored: Any, _: Any) -> Write[None]:
        known = LoweredLimit.model_validate(stored)
        lowered_at, grows_from = known.lowered_at - passed, known.grows_from - passed
        earlier = replace(known, lowered_at=lowered_at, grows_from=grows_from)
        return Write(None, to_document(earlier))

    engine.documents.transact(lowered_ref(key), moved)


@pytest.mark.each_store
def test_four_that_are_refused_at_one_moment_halve_it_once_and_it_grows_again(
    world: World, engine: Engine, bound: Bound
) -> None:
    runs = [world.start("refused") for _ in range(4)]
    for run_id in runs:
        world.hold(run_id)
    for run_id in runs:
        GO[world.name_of(run_id)].set()
    assert [world.let_go(run_id) for run_id in runs] == ["retry_scheduled"] * 4

    (event,) = lowerings(engine, *runs)
    assert event.detail is not None
    assert event.detail.startswith(
        f"limit model:{world.model} (4 at once) is lowered to 50.0% of that, as its provider takes "
        "no more for 30 s; from "
    )
    assert event.step == "refused"
    first, second, third = (world.start("refused") for _ in range(3))
    world.hold(first)
    world.hold(second)
    assert world.hint(third) == "awaits_slot"
    words = explain_run(engine, third, is_gone=lambda _: False).explanation.words
    assert "The limit is lowered to 2 at once, as its provider took no more at " in words
    let_time_pass(engine, bound.key, timedelta(seconds=30, minutes=1))
    assert in_force(engine, bound).lowered_to == 2
    let_time_pass(engine, bound.key, timedelta(minutes=1))
    assert in_force(engine, bound).lowered_to == 3
    let_time_pass(engine, bound.key, timedelta(minutes=2))
    assert in_force(engine, bound).lowered_to == 4
    let_time_pass(engine, bound.key, timedelta(minutes=12))
    assert in_force(engine, bound) == bound


def test_those_at_work_in_higher_slots_keep_others_out_and_two_are_called_as_it_grows(
    world: World, engine: Engine, bound: Bound
) -> None:
    held = [world.start("work") for _ in range(4)]
    for run_id in held:
        world.hold(run_id)
    _lower_by_hand(engine, bound)
    waiting = [world.start("quick") for _ in range(4)]
    assert [world.hint(run_id) for run_id in waiting] == ["awaits_slot"] * 4

    world.let_go(held[0])
    assert sum(world.waits(run_id) for run_id in waiting) == 4, "three are at work, of two"
    world.let_go(held[1])
    assert sum(world.waits(run_id) for run_id in waiting) == 4, "two are at work, of two"
    let_time_pass(engine, bound.key, timedelta(minutes=2, seconds=30))  # to three

    world.let_go(held[2])

    called = [run_id for run_id in waiting if not world.waits(run_id)]
    assert len(called) == 2
    assert [world.hint(run_id) for run_id in called] == ["completed"] * 2
    world.let_go(held[3])


def _lower_by_hand(engine: Engine, bound: Bound) -> None:
    def halved(_: Any, now: Any) -> Write[None]:
        half = make(LoweredLimit, key=bound.key, share=0.5, lowered_at=now, grows_from=now)
        return Write(None, to_document(half))

    engine.documents.transact(lowered_ref(bound.key), halved)


def test_a_worker_that_has_lost_its_lease_halves_nothing(
    world: World, engine: Engine, bound: Bound
) -> None:
    """It was frozen while its provider refused it, and comes back: by the store's time."""
    run_id = world.start("quick")
    zombie = engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, 1)))
    lease, began = zombie.manifest.position.lease, zombie.store_time()
    assert lease is not None
    over = replace(zombie.manifest.position, lease=replace(lease, expires_at=lease.acquired_at))
    zombie.manifest = replace(zombie.manifest, position=over)

    lower(engine, zombie, FOUR, bound.key, began=began, retry_after_s=30)

    assert engine.documents.get(lowered_ref(bound.key)) is None
    assert lowerings(engine, run_id) == []


def test_a_call_that_is_refused_in_its_block_halves_its_limit_though_the_handler_goes_on(
    world: World, engine: Engine
) -> None:
    run_id = world.start("block")

    assert world.hint(run_id) == "completed"

    bound = Bound(CALL, f"call:{world.model}", is_rate=False, most=4)
    assert in_force(engine, bound).lowered_to == 2
    assert len(lowerings(engine, run_id)) == 1
    found = engine.documents.query(Query("slots", equal={"runId": run_id}))
    assert list(found) == [], "its slot is free after the block"


def test_a_rate_is_halved_for_those_who_come_next(world: World, engine: Engine) -> None:
    run_id = world.start("paced")
    GO[world.name_of(run_id)].set()

    assert world.hint(run_id) == "retry_scheduled"

    others = [world.start("paced") for _ in range(2)]
    for other in others:
        GO[world.name_of(other)].set()
    assert [world.hint(other) for other in others] == ["retry_scheduled", "awaits_slot"]
    assert len(lowerings(engine, run_id, *others)) == 1


def test_a_limit_that_does_not_adapt_stays_as_it_is(world: World, engine: Engine) -> None:
    run_id = world.start("fixed")
    GO[world.name_of(run_id)].set()

    assert world.hint(run_id) == "retry_scheduled"

    assert engine.documents.get(lowered_ref(f"fixed:{world.model}")) is None
    assert lowerings(engine, run_id) == []


@pytest.mark.each_store
def test_the_keys_that_are_lowered_are_found_among_all_that_limits_keep(
    world: World, engine: Engine, bound: Bound, documents: Documents
) -> None:
    """Only the trace of the run that was refused, and runs that wait, said so."""
    run_id = world.start("refused")
    world.hold(run_id)
    world.let_go(run_id)
    edited = Ref("slots", f"lowered-{world.model}")
    documents.transact(edited, lambda *_: Write(None, {"key": bound.key, "share": "half"}))

    def shares() -> list[float]:
        return [one["share"] for one in lowered_now(engine) if one["key"] == bound.key]

    assert shares() == [0.5]
    let_time_pass(engine, bound.key, timedelta(seconds=30, minutes=2))
    assert shares() == [0.75]
    let_time_pass(engine, bound.key, timedelta(minutes=2))
    assert shares() == []
    documents.delete(edited)
