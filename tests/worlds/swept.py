"""Runs for the tests of the sweep, and queues and stores that fail under it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count, islice
from typing import Any

from leasehold.adapters.clock import SystemClock
from leasehold.domain import lifecycle
from leasehold.domain.effect import Task
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Manifest, manifest_of, run_ref, to_document
from leasehold.domain.stored import Write
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Documents, Query, Snapshot
from leasehold.services.engine import Engine
from tests.worlds.builders import new_run

EARLIER = timedelta(minutes=10)


class Clock(SystemClock):
    """The machine's clock, whose seconds pass as a test says."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


class Queue:
    """A task queue that has every task it is asked for, and keeps what it gets."""

    def __init__(self, on_look: Callable[[], object] = lambda: None) -> None:
        self.created: list[Task] = []
        self._on_look = on_look

    def create(self, task: Task) -> None:
        self.created.append(task)

    def exists(self, _: Task) -> bool:
        self._on_look()
        return True


def ids_of(shard: int, how_many: int, prefix: str) -> list[str]:
    """Return names of runs that are in this shard."""
    names = (f"{prefix}-{number}" for number in count())
    return list(islice((n for n in names if zlib.crc32(n.encode()) % SHARDS == shard), how_many))


def put(engine: Engine, *runs: Manifest) -> None:
    creates = {run_ref(run.run_id): to_document(run) for run in runs}
    engine.documents.transact(run_ref("nobody"), lambda _, __: Write(None, creates=creates))


def waiting(
    engine: Engine, run_id: str, ago: timedelta = EARLIER, pipeline_name: str = "three"
) -> Manifest:
    """Return a run whose task was created so long ago, and waits."""
    pipeline = engine.catalog.pipeline(pipeline_name)
    new = new_run(run_id, pipeline=pipeline.name, plan=pipeline.plan)
    return lifecycle.start(None, engine.clock.now() - ago, rules=engine.rules, new=new).manifest


def of_a_dead_worker(
    engine: Engine,
    run_id: str,
    ago: timedelta = timedelta(minutes=1),
    pipeline_name: str = "three",
) -> Manifest:
    """Return a run whose worker was not heard of any more so long ago."""
    run = waiting(engine, run_id, ago, pipeline_name)
    return lifecycle.arrive(
        run,
        engine.clock.now() - ago,
        rules=engine.rules,
        generation=1,
        lease_id="lease-1",
        holder="dead",
    ).manifest


def stored(engine: Engine, run_id: str) -> Manifest:
    found = engine.documents.get(run_ref(run_id))
    assert found is not None
    return manifest_of(run_id, found.document)


class OneRefused:
    """A store that does not take the change of one run."""

    def __init__(self, within: Documents, refused: str) -> None:
        self._within = within
        self._refused = refused

    def transact(self, ref: Any, decide: Any, **options: Any) -> Any:
        if ref.id == self._refused:
            raise StoreUnavailableError(store="the test", problem="this run is locked")
        return self._within.transact(ref, decide, **options)

    def query(self, query: Query) -> Sequence[Snapshot]:
        return self._within.query(query)
