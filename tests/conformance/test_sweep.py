"""The sweep on both stores: what is due, in which order, and whom one bad run holds up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from bench.dead_workers import locked_for_reading
from leasehold.adapters.clock import SystemClock
from leasehold.domain.effect import Task
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Documents, Query, Snapshot
from leasehold.services.engine import Engine
from leasehold.services.sweep import WIDTH, sweep
from tests.conformance.swept import (
    Clock,
    OneRefused,
    Queue,
    engine_of,
    ids_of,
    of_a_dead_worker,
    put,
    stored,
    waiting,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def engine(documents: Documents, clock: Clock, queue: Queue, tmp_path: Path) -> Iterator[Engine]:
    yield from engine_of(documents, clock, queue, tmp_path)


def test_a_dead_workers_run_comes_before_all_that_wait_however_long(
    engine: Engine, queue: Queue, clock: Clock, unique: str
) -> None:
    """They stand before it in its own shard, and the time is over long before their end."""
    (dead, *others) = ids_of(3, 251, unique)
    put(engine, of_a_dead_worker(engine, dead), *(waiting(engine, other) for other in others))

    def look() -> None:
        clock.seconds += 1

    looking = replace(engine, tasks=Queue(look))
    result = sweep(looking, time=timedelta(seconds=20), width=1)

    assert stored(engine, dead).position.dispatch.generation == 2
    assert (result.recovered, result.still_queued, result.more) == (1, 20, True)


def test_one_call_attends_to_all_that_is_due_and_reads_each_once(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """All in one shard, more than a page of it; the leases may be read twice while they end."""
    dead, others = ids_of(5, 3, f"{unique}-d"), ids_of(5, 230, f"{unique}-w")
    put(engine, *(of_a_dead_worker(engine, run_id) for run_id in dead))
    put(engine, *(waiting(engine, run_id) for run_id in others))

    result, again = sweep(engine), sweep(engine)

    assert (result.recovered, result.still_queued, result.more) == (3, 230, False)
    assert 233 <= result.documents_read <= 233 + WIDTH
    assert sorted(task.run_id for task in queue.created) == sorted(dead)
    assert (again.documents_read, again.more) == (0, False)


def test_a_sweep_without_time_attends_to_nothing_and_says_that_more_is_due(
    engine: Engine, unique: str
) -> None:
    put(engine, waiting(engine, unique))

    result = sweep(engine, time=timedelta())

    assert (result.still_queued, result.more) == (0, True)
    assert sweep(engine).still_queued == 1


def test_each_shard_has_its_turn_while_the_backlog_of_another_is_attended(
    engine: Engine, clock: Clock, unique: str
) -> None:
    """One page of each, then the next of those that have one."""
    backlog = [run_id for shard in (1, 9) for run_id in ids_of(shard, 150, unique)]
    (other,) = ids_of(4, 1, unique)
    put(engine, *(waiting(engine, run_id) for run_id in backlog), waiting(engine, other))

    def look() -> None:
        clock.seconds += 1

    result = sweep(replace(engine, tasks=Queue(look)), time=timedelta(seconds=202), width=1)

    assert (result.still_queued, result.more) == (202, True)
    assert stored(engine, other).position.dispatch.seen_at is not None


def test_a_run_that_cannot_be_written_is_left_and_no_other_of_its_queue(
    engine: Engine, unique: str
) -> None:
    """The store failed for one run; neither its queue nor the sweep has."""
    locked, *others = (f"{unique}-{number}" for number in range(20))
    put(engine, *(of_a_dead_worker(engine, run_id) for run_id in (locked, *others)))
    logged: list[str] = []
    refusing: Any = OneRefused(engine.documents, locked)

    result = sweep(
        replace(engine, documents=refusing, listeners=replace(engine.listeners, log=logged.append))
    )

    assert (result.recovered, result.unattended, result.more) == (19, 1, False)
    assert [line for line in logged if locked in line] == logged
    assert "waits for the next sweep: [store_unavailable]" in logged[0]
    assert sweep(engine).recovered == 1


class NoLeases(OneRefused):
    """A store whose index of leases is not there yet."""

    def __init__(self, within: Documents) -> None:
        super().__init__(within, "none")

    def query(self, query: Query) -> Sequence[Snapshot]:
        if "status" in query.equal:
            raise StoreUnavailableError(store="the test", problem="the query needs an index")
        return super().query(query)


def test_an_index_that_is_still_built_costs_the_order_and_no_run(
    engine: Engine, unique: str
) -> None:
    put(engine, of_a_dead_worker(engine, unique))
    without_index: Any = NoLeases(engine.documents)

    with pytest.raises(StoreUnavailableError, match="needs an index"):
        sweep(replace(engine, documents=without_index))

    assert stored(engine, unique).position.dispatch.generation == 2


def test_recovery_beside_a_locked_run_takes_no_longer(
    kind: str, engine: Engine, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is given up once all others are recovered: nothing else has it given up in time."""
    if kind != "firestore":
        pytest.skip("only Firestore locks a single document")
    monkeypatch.setattr("leasehold.services.sweep.ATTEND_WITHIN_S", 120.0)
    locked, *others = (f"{unique}-{number}" for number in range(40))
    put(engine, *(of_a_dead_worker(engine, run_id) for run_id in (locked, *others)))
    moved: list[str] = []
    are_others_moved = Event()

    def note(change: Any) -> None:
        moved.append(change.manifest.run_id)
        if len(moved) == len(others):
            are_others_moved.set()

    with ThreadPoolExecutor(1) as threads:
        with locked_for_reading(engine.documents, locked):
            sweeping = threads.submit(
                sweep,
                replace(
                    engine, clock=SystemClock(), listeners=replace(engine.listeners, observe=note)
                ),
            )
            assert are_others_moved.wait(100)
        result = sweeping.result()

    assert (result.recovered, result.unattended) == (40, 0)
    assert moved[-1] == locked


def test_a_locked_run_is_left_to_the_next_sweep(
    kind: str, engine: Engine, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind != "firestore":
        pytest.skip("only Firestore locks a single document")
    monkeypatch.setattr("leasehold.services.sweep.ATTEND_WITHIN_S", 0.3)
    put(engine, of_a_dead_worker(engine, unique))

    with locked_for_reading(engine.documents, unique):
        result = sweep(engine)
    monkeypatch.undo()
    sweep(engine)  # what was sent in vain may have been done late, when the lock was given up

    assert (result.recovered, result.unattended) == (0, 1)
    assert stored(engine, unique).position.dispatch.generation == 2


class TakesNothing(Queue):
    """A queue that says what it has, which is nothing, and takes nothing."""

    def create(self, _: Task) -> None:
        raise StoreUnavailableError(store="the test", problem="over its quota")

    def exists(self, _: Task) -> bool:
        return False


def test_a_queue_that_takes_no_task_gives_no_run_up(engine: Engine, unique: str) -> None:
    """A task that could not be created is not lost, however long that lasts."""
    runs = [f"{unique}-{number}" for number in range(3)]
    put(engine, *(waiting(engine, run_id) for run_id in runs))
    impatient = replace(engine.rules, grace=timedelta(seconds=-1), max_interruptions=2)
    away: Any = replace(engine, tasks=TakesNothing(), rules=impatient)

    for _ in range(12):
        with pytest.raises(StoreUnavailableError, match="over its quota"):
            sweep(away)

    for run_id in runs:
        run = stored(engine, run_id)
        assert (run.dead_lettered, run.position.dispatch.redispatched) == (False, 0)


class NothingButLeases(OneRefused):
    """A store that goes away while a run is attended, and before the rest can be asked for."""

    def __init__(self, within: Documents) -> None:
        super().__init__(within, "none")
        self.is_away = Event()

    def transact(self, ref: Any, decide: Any, **options: Any) -> Any:
        assert self.is_away.wait(60)
        return super().transact(ref, decide, **options)

    def query(self, query: Query) -> Sequence[Snapshot]:
        if "status" not in query.equal:
            self.is_away.set()
            raise StoreUnavailableError(store="the test", problem="it is away")
        return super().query(query)


def test_what_was_begun_when_the_store_went_away_gets_its_task(
    engine: Engine, queue: Queue, unique: str
) -> None:
    put(engine, of_a_dead_worker(engine, unique))
    going: Any = NothingButLeases(engine.documents)

    with pytest.raises(StoreUnavailableError, match="it is away"):
        sweep(replace(engine, documents=going))

    assert [task.run_id for task in queue.created] == [unique]
