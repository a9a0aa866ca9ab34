"""The sweep on both stores: what is due, in which order, and what gets done where some fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any, Final

import pytest

from bench.dead_workers import locked_for_reading
from leasehold.adapters.clock import SystemClock
from leasehold.domain.effect import Task
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Documents, Query, Snapshot
from leasehold.services.engine import Engine
from leasehold.services.sweep import ATTEND_WITHIN_S, ATTENDED_AT_ONCE, LEASE_LOOK_EVERY_S, sweep
from tests.worlds.catalogs import sample
from tests.worlds.engines import OpenEngine
from tests.worlds.swept import (
    Clock,
    OneRefused,
    Queue,
    ids_of,
    of_a_dead_worker,
    put,
    stored,
    waiting,
)

pytestmark = pytest.mark.one_store

#: Pipelines whose first steps have queues of their own.
FOUR: Final = ("three", "refuses", "large", "half")
LONG_AGO: Final = timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def engine(
    open_engine: OpenEngine, documents: Documents, clock: Clock, queue: Queue
) -> Iterator[Engine]:
    """An engine on a store of which nothing is due; then nothing is again."""
    yield open_engine(sample, clock=clock, tasks=queue)
    for shard in range(SHARDS):
        equal = {"shard": shard}
        for found in documents.query(Query("runs", order_by="alarmAt", equal=equal, limit=1000)):
            documents.delete(found.ref)


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


@pytest.mark.each_store
def test_one_call_attends_to_all_that_is_due_and_reads_each_once(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """All in one shard, more than two pages of it; the leases may be read twice while they end."""
    dead, others = ids_of(5, 3, f"{unique}-d"), ids_of(5, 110, f"{unique}-w")
    put(engine, *(of_a_dead_worker(engine, run_id) for run_id in dead))
    put(engine, *(waiting(engine, run_id) for run_id in others))

    result, again = sweep(engine), sweep(engine)

    assert (result.recovered, result.still_queued, result.more) == (3, 110, False)
    assert 113 <= result.documents_read <= 113 + ATTENDED_AT_ONCE
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
    engine: Engine, clock: Clock, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One page of each, then the next of those that have one, whichever is the first."""
    monkeypatch.setattr("leasehold.services.sweep.WHOLE_RUNS", 10)
    backlog = [run_id for shard in (1, 9) for run_id in ids_of(shard, 25, unique)]
    (other,) = ids_of(4, 1, unique)
    put(engine, *(waiting(engine, run_id) for run_id in backlog), waiting(engine, other))

    def look() -> None:
        clock.seconds += 1

    result = sweep(replace(engine, tasks=Queue(look)), time=timedelta(seconds=22), width=1)

    assert (result.still_queued, result.more) == (22, True)
    assert stored(engine, other).position.dispatch.seen_at is not None


@pytest.mark.each_store
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


# Where much is due and something fails.


class Refusing:
    """A store that takes no change of runs whose ids begin so, and needs its time to say so."""

    def __init__(self, within: Documents, prefix: str, refused: Callable[[], object]) -> None:
        self._within = within
        self._prefix = prefix
        self._refused = refused

    def transact(self, ref: Any, decide: Any, **options: Any) -> Any:
        if ref.id.startswith(self._prefix):
            self._refused()
            raise StoreUnavailableError(store="the test", problem="this run is locked")
        return self._within.transact(ref, decide, **options)

    def query(self, query: Query) -> Any:
        return self._within.query(query)


def refusing(engine: Engine, clock: Clock, prefix: str) -> Engine:
    def refused() -> None:
        clock.seconds += ATTEND_WITHIN_S

    store: Any = Refusing(engine.documents, prefix, refused)
    return replace(engine, documents=store, listeners=replace(engine.listeners, log=lambda _: None))


def test_a_fresh_expiry_is_not_behind_old_ones_that_cannot_be_written(
    engine: Engine, clock: Clock, unique: str
) -> None:
    """All that is left of earlier sweeps comes first by its alarm, and would take all the time."""
    locked = [f"{unique}-locked-{number}" for number in range(60)]
    fresh = [f"{unique}-fresh-{number}" for number in range(20)]
    put(engine, *(of_a_dead_worker(engine, run_id, LONG_AGO) for run_id in locked))
    put(engine, *(of_a_dead_worker(engine, run_id) for run_id in fresh))

    result = sweep(refusing(engine, clock, f"{unique}-locked"), width=1)

    assert [stored(engine, run_id).position.dispatch.generation for run_id in fresh] == [2] * 20
    assert (result.recovered, result.unattended) == (20, 60)


def test_leases_that_cannot_be_written_have_half_the_time_and_then_others_their_turn(
    engine: Engine, clock: Clock, unique: str
) -> None:
    locked = [f"{unique}-locked-{number}" for number in range(60)]
    put(engine, *(of_a_dead_worker(engine, run_id) for run_id in locked))
    put(engine, waiting(engine, unique, LONG_AGO))

    result = sweep(refusing(engine, clock, f"{unique}-locked"), width=1)

    assert (result.still_queued, result.unattended, result.more) == (1, 60, False)
    assert clock.seconds == 45
    assert sweep(engine).recovered == 60


def test_leases_that_are_written_come_before_all_that_waits_however_slow_the_store(
    engine: Engine, clock: Clock, unique: str
) -> None:
    """They take all the time there is, and the next sweep goes on."""
    put(engine, *(of_a_dead_worker(engine, f"{unique}-d{number}") for number in range(120)))
    put(engine, *(waiting(engine, f"{unique}-w{number}", LONG_AGO) for number in range(20)))

    def tick(_: Any) -> None:
        clock.seconds += 1

    slow = replace(engine, listeners=replace(engine.listeners, observe=tick))
    first, second = sweep(slow, width=1), sweep(slow, width=1)

    assert (first.recovered, first.still_queued, first.more) == (90, 0, True)
    assert (second.recovered, second.still_queued, second.more) == (30, 20, False)


def in_four_queues(engine: Engine, unique: str, of_each: int) -> list[str]:
    """Put runs that wait into four queues, and the run of a dead worker into each."""
    ids = [f"{unique}-{number}" for number in range(4 * of_each)]
    put(engine, *(waiting(engine, run, pipeline_name=FOUR[n % 4]) for n, run in enumerate(ids)))
    dead = [f"{unique}-dead-{name}" for name in FOUR]
    put(
        engine,
        *(
            of_a_dead_worker(engine, run, pipeline_name=n)
            for run, n in zip(dead, FOUR, strict=True)
        ),
    )
    return dead


class OneAway(Queue):
    """Queues of which one does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def create(self, task: Task) -> None:
        self._ask(task)
        super().create(task)

    def exists(self, task: Task) -> bool:
        self._ask(task)
        return True

    def _ask(self, task: Task) -> None:
        self.asked[task.queue] += 1
        if task.queue == "half":
            raise StoreUnavailableError(store="the test", problem="the queue is away")


def test_one_of_four_queues_that_is_away_keeps_no_run_of_the_others(
    engine: Engine, unique: str
) -> None:
    """Its own dead worker is noticed too: the run is committed, and its task is owed."""
    dead, queues = in_four_queues(engine, unique, of_each=40), OneAway()
    done: list[Any] = []
    away = replace(
        engine,
        tasks=queues,
        listeners=replace(engine.listeners, observe=done.append, log=lambda _: None),
    )

    with pytest.raises(StoreUnavailableError, match="the queue is away"):
        sweep(away)

    outcomes = Counter(str(change.outcome) for change in done)
    assert (outcomes["expired"], outcomes["still_queued"]) == (4, 120)
    assert [stored(engine, run_id).position.dispatch.generation for run_id in dead] == [2] * 4
    assert queues.asked["half"] <= 2  # once to look, or to create


def test_a_queue_that_answers_slowly_keeps_no_lease_waiting(
    engine: Engine, clock: Clock, unique: str
) -> None:
    """A second for each look: what is not attended now, the next sweep attends to first."""
    in_four_queues(engine, unique, of_each=40)

    def look() -> None:
        clock.seconds += 1

    slow = replace(engine, tasks=Queue(look))
    first, second = sweep(slow, width=1), sweep(slow, width=1)

    assert (first.recovered, first.still_queued, first.more) == (4, 90, True)
    assert (second.recovered, second.still_queued, second.more) == (0, 70, False)


class GoesAway:
    """A store that takes so many changes, and then is away."""

    def __init__(self, within: Documents, changes: int) -> None:
        self._within = within
        self._left = changes

    def transact(self, ref: Any, decide: Any, **options: Any) -> Any:
        self._left -= 1
        self._check()
        return self._within.transact(ref, decide, **options)

    def query(self, query: Query) -> Any:
        self._check()
        return self._within.query(query)

    def _check(self) -> None:
        if self._left < 0:
            raise StoreUnavailableError(store="the test", problem="it is away")


def test_what_a_store_that_goes_away_left_the_next_sweep_attends_to(
    engine: Engine, queue: Queue, unique: str
) -> None:
    dead = in_four_queues(engine, unique, of_each=40)
    going: Any = GoesAway(engine.documents, 50)

    with pytest.raises(StoreUnavailableError, match="it is away"):
        sweep(
            replace(
                engine, documents=going, listeners=replace(engine.listeners, log=lambda _: None)
            )
        )
    first = len(queue.created)
    after = sweep(engine)

    assert first == 4
    assert after.still_queued == 160 - 46
    assert {task.run_id for task in queue.created} == set(dead)
    assert sweep(engine).documents_read == 0


class Killed(BaseException):
    """Ends a sweep as SIGKILL does: nothing of it runs any more."""


def test_what_a_killed_sweep_left_the_next_one_attends_to(
    engine: Engine, queue: Queue, unique: str
) -> None:
    """Also what it committed and did not create: its task counts as lost, and comes again."""
    at_once = replace(engine, rules=replace(engine.rules, grace=timedelta(seconds=-1)))
    put(engine, *(of_a_dead_worker(engine, f"{unique}-{number}") for number in range(60)))

    class Deadly(Queue):
        def create(self, task: Task) -> None:
            if len(self.created) == 20:
                raise Killed
            super().create(task)

    deadly = Deadly()
    with pytest.raises(Killed):
        sweep(replace(at_once, tasks=deadly))

    class Knows(Queue):
        def exists(self, task: Task) -> bool:
            known = [*deadly.created, *self.created]
            return any(task.name == each.name for each in known)

    knows = Knows()
    after = sweep(replace(at_once, tasks=knows))

    assert after.recovered + after.redispatched == 40
    created = {task.run_id for task in (*deadly.created, *knows.created)}
    assert created == {f"{unique}-{number}" for number in range(60)}


@pytest.mark.each_store
def test_two_sweeps_at_once_do_everything_once(engine: Engine, queue: Queue, unique: str) -> None:
    in_four_queues(engine, unique, of_each=15)
    done: list[Any] = []
    watched = replace(engine, listeners=replace(engine.listeners, observe=done.append))

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(sweep, watched) for _ in range(2)]
        results = [each.result() for each in both]

    changed = [change for change in done if change.changed]
    assert [each.unattended for each in results] == [0, 0]
    assert sum(each.recovered for each in results) == 4
    assert len(changed) == len({change.manifest.run_id for change in changed}) == 64
    assert sorted(task.run_id for task in queue.created) == sorted(
        f"{unique}-dead-{name}" for name in FOUR
    )


def test_a_sweep_that_finds_nothing_asks_each_shard_twice_and_for_deliveries_once(
    engine: Engine,
) -> None:
    """A query that finds nothing is billed as one read: this is what a minute costs."""
    asked: list[Query] = []

    class Asked:
        def query(self, query: Query) -> list[Snapshot]:
            asked.append(query)
            return []

    store: Any = Asked()
    sweep(replace(engine, documents=store))

    assert Counter(query.collection for query in asked) == {"runs": 2 * SHARDS, "deliveries": 1}


def test_a_sweep_among_some_runs_leaves_the_others_as_they_are(engine: Engine, unique: str) -> None:
    mine, other = f"{unique}-mine", f"{unique}-other"
    put(engine, of_a_dead_worker(engine, mine), of_a_dead_worker(engine, other))

    assert sweep(engine, among={mine}).recovered == 1
    assert stored(engine, mine).position.lease is None
    assert stored(engine, other).position.lease is not None


def test_sweeps_begin_with_different_shards(engine: Engine) -> None:
    """One whose time is over would otherwise never come to those behind a long backlog."""
    asked: list[Query] = []

    class Asked:
        def query(self, query: Query) -> list[Snapshot]:
            asked.append(query)
            return []

    store: Any = Asked()
    firsts = set()
    for _ in range(20):
        asked.clear()
        sweep(replace(engine, documents=store))
        firsts.add(asked[0].equal["shard"])

    assert len(firsts) > 1


def test_no_queue_is_asked_before_the_runs_of_dead_workers_are_recovered(
    engine: Engine, unique: str
) -> None:
    in_four_queues(engine, unique, of_each=30)
    looks: list[str] = []
    looks_before: list[int] = []

    def note(change: Any) -> None:
        if str(change.outcome) == "expired":
            looks_before.append(len(looks))

    sweep(
        replace(
            engine,
            tasks=Queue(lambda: looks.append("")),
            listeners=replace(engine.listeners, observe=note),
        ),
        width=1,
    )

    assert looks_before == [0, 0, 0, 0]
    assert len(looks) == 120


def test_a_lease_that_ends_while_a_long_sweep_runs_does_not_wait_for_the_next(
    engine: Engine, clock: Clock, unique: str
) -> None:
    """The next one begins when this one is done, which may be minutes later."""
    put(engine, *(waiting(engine, f"{unique}-{number}") for number in range(80)))
    found_at: list[float] = []
    read: list[int] = []  # the shards of which this sweep has read all by then

    def look() -> None:
        clock.seconds += 1
        if clock.seconds == 30:
            (dead,) = ids_of(read[0], 1, f"{unique}-dead")
            put(engine, of_a_dead_worker(engine, dead))

    def note(change: Any) -> None:
        read.append(change.manifest.shard)
        if str(change.outcome) == "expired":
            found_at.append(clock.seconds)

    result = sweep(
        replace(engine, tasks=Queue(look), listeners=replace(engine.listeners, observe=note)),
        width=1,
    )

    assert (result.recovered, result.still_queued, result.more) == (1, 80, False)
    assert 30 <= found_at[0] <= 30 + LEASE_LOOK_EVERY_S
