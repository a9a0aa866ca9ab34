"""Progress is stored soon while it changes, and never more often than every 2 s."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.checkpoints import keep_checkpoint
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.trace import TraceType
from leasehold.registry.pipelines import Catalog
from leasehold.registry.registry import Registry
from tests.unit.worker.leased_world import World, holding, world_of
from tests.worlds.catalogs.sample import PIPELINES, STEPS

HALF = Progress(fraction=0.5, message="page 3")
MORE = Progress(fraction=0.6, message="page 4")


@pytest.fixture
def without_heartbeat(tmp_path: Path) -> Iterator[World]:
    entries = [replace(entry, heartbeat_interval=None) for entry in STEPS]
    steps = Registry("dispatch", entries)
    with world_of(tmp_path, Catalog(steps=steps, pipelines=PIPELINES)) as made:
        yield made


def beat_if_due(held: Attempt) -> bool:
    is_due = held.is_due
    if is_due:
        held.beat()
    return is_due


def stored(world: World, held: Attempt) -> Progress | None:
    return world.run_of(held).steps["hold"].progress


def test_a_handler_that_never_stops_talking_is_stored_every_2_s(world: World) -> None:
    held = world.held()
    writes = []

    for tick in range(1, 41):  # 20 s, a word every half of one
        world.clock.advance(0.5)
        held.progress = Progress(fraction=tick / 40, message=f"word {tick}")
        if beat_if_due(held):
            writes.append(tick / 2)

    assert writes == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    assert stored(world, held) == Progress(fraction=1.0, message="word 40")


def test_progress_that_does_not_change_costs_no_write_of_its_own(world: World) -> None:
    """A beat comes as ever."""
    held = world.held()
    writes = []

    for second in range(1, 21):
        world.clock.advance(1)
        held.progress = Progress(fraction=0.5, message="page 3")
        if beat_if_due(held):
            writes.append(second)

    assert writes == [2, 12]


def test_a_step_that_ends_within_2_s_stores_it_with_its_end(world: World) -> None:
    held = world.held()
    held.progress = HALF

    world.clock.advance(1.9)

    assert not held.is_due
    assert stored(world, held) is None


def test_a_checkpoint_stores_it_too_and_counts_as_a_write(world: World) -> None:
    held = world.held()
    world.clock.advance(1.5)
    held.progress = HALF
    keep_checkpoint(held, 1, "", "[]")
    held.progress = MORE

    world.clock.advance(1.5)
    too_soon = held.is_due
    kept = stored(world, held)
    world.clock.advance(0.5)

    assert (too_soon, kept) == (False, HALF)
    assert beat_if_due(held)
    assert stored(world, held) == MORE


def test_without_a_heartbeat_it_waits_for_a_write_that_comes_anyway(
    without_heartbeat: World,
) -> None:
    held = without_heartbeat.held()
    held.progress = HALF
    without_heartbeat.clock.advance(60)
    due = held.is_due

    keep_checkpoint(held, 1, "", "[]")

    assert not due
    assert stored(without_heartbeat, held) == HALF


def test_a_store_that_is_away_is_asked_again_after_2_s(world: World) -> None:
    held = world.held()
    held.progress = HALF
    world.store.is_down = True
    world.clock.advance(2)
    first = beat_if_due(held)
    at_once = held.is_due
    world.store.is_down = False
    world.clock.advance(2)

    again = beat_if_due(held)

    assert (first, at_once, again) == (True, False, True)
    assert stored(world, held) == HALF
    assert not held.stop.is_requested


def test_a_worker_that_lost_its_lease_stores_none_of_its_progress(world: World) -> None:
    held = world.held()
    world.clock.advance(31)
    held.progress = HALF
    before = world.run_of(held)

    held.beat()

    assert world.run_of(held) == before
    assert [event.type for event in world.losses(held)] == [TraceType.LEASE_LOST]
    assert held.is_settled


def test_the_keeper_stores_it_between_two_beats(world: World) -> None:
    keeper = world.engine.leases
    with holding(world.engine, world.acquire()) as held:
        held.progress = HALF
        world.clock.advance(2)
        keeper.look()

        assert stored(world, held) == HALF
        assert held.renew_at - world.clock.monotonic() == 10
