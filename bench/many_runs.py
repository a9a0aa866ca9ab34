"""A store with very many runs, and what is asked of it: for the benchmark of scale."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.firestore_steps import DATABASE, Meter, OwnTasks
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.bootstrap import boot
from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref, Write, replace
from leasehold.ports.documents import Committed, Documents, Query, Snapshot
from leasehold.services.engine import Engine

CLOCK: Final = SystemClock()
#: What lists are filtered by: a label of one active run in ten, and one of the dead runs alone.
COMMON: Final = "team:a"
RARE: Final = "cause:outage"
_LATER: Final = timedelta(hours=6)
_EARLIER: Final = timedelta(minutes=10)
_VM_STEPS: Final = 100

_NUMBERS: Final = itertools.count()  # so that runs are spread over the shards alike each time


@dataclass(frozen=True, slots=True)
class Size:
    """How many runs: active, of them due, and dead beside them."""

    active: int
    due: int
    dead: int


class Counting:
    """The documents port, which counts the documents it gives: what Firestore has paid for."""

    def __init__(self, within: Documents) -> None:
        self.within = within
        self.reads = 0

    def transact(
        self,
        ref: Ref,
        decide: DecideDocument[Answer],
        *,
        if_version: Snapshot | None = None,
        is_new: bool = False,
        now: datetime | None = None,
        in_transaction: bool = False,
        within: float | None = None,
    ) -> Committed[Answer]:
        """Count the document that is decided on, unless it is known."""
        if if_version is None:
            self.reads += 1
        return self.within.transact(
            ref,
            decide,
            if_version=if_version,
            is_new=is_new,
            now=now,
            in_transaction=in_transaction,
            within=within,
        )

    def get(self, ref: Ref) -> Snapshot | None:
        """Count one."""
        self.reads += 1
        return self.within.get(ref)

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Count what is found; a query that finds nothing costs one.

        The look for overrides is no sweep's and no page's: it comes every ten seconds.
        """
        found = self.within.query(query)
        if query.collection != "overrides":
            self.reads += max(1, len(found))
        return found

    def count(self, query: Query, most: int) -> int:
        """Count one for each 1,000 that are counted, as they are paid for."""
        count = self.within.count(query, most)
        self.reads += max(1, ceil(count / 1000))
        return count

    def delete(self, ref: Ref, *, if_version: Snapshot | None = None) -> None:
        """Delete the document."""
        self.within.delete(ref, if_version=if_version)

    def delete_all(self, refs: Sequence[Ref]) -> None:
        """Delete the documents."""
        self.within.delete_all(refs)

    def give_back_space(self) -> None:
        """Give back what was deleted."""
        self.within.give_back_space()

    def close(self) -> None:
        """Close the store."""
        self.within.close()


class SteppedSqlite(SqliteDocuments):
    """SQLite, which also tells how far its virtual machine ran: rows looked at, not only given."""

    steps = 0

    def _connect(self) -> Any:
        connection = super()._connect()
        connection.set_progress_handler(self._count, _VM_STEPS)
        return connection

    def _count(self) -> None:
        self.steps += _VM_STEPS


@dataclass(slots=True)
class Place:
    """A store with its runs, wired."""

    engine: Engine
    counting: Counting
    environ: dict[str, str]
    stepped: SteppedSqlite | None = None

    @property
    def steps(self) -> int:
        """How far SQLite's machine has run; 0 on another store."""
        return 0 if self.stepped is None else self.stepped.steps


@contextmanager
def sqlite_place(size: Size) -> Iterator[Place]:
    """Make a store of so many runs in a file."""
    with TemporaryDirectory() as folder:
        store = SteppedSqlite(Path(folder) / "runs.db", CLOCK)
        environ = {"LEASEHOLD_STORE": f"sqlite:///{folder}/runs.db"}
        place = _place(store, environ, folder)
        place.stepped = store
        _fill(store, place.engine, size, at_once=10_000)
        yield place
        store.close()


@contextmanager
def firestore_place(host: str, project: str, size: Size) -> Iterator[Place]:
    """Make a store of so many runs in the emulator."""
    with TemporaryDirectory() as folder:
        store = FirestoreDocuments(project, DATABASE, CLOCK, connect=Meter(host).connect)
        environ = {
            "LEASEHOLD_STORE": f"firestore://{project}/{DATABASE}",
            "FIRESTORE_EMULATOR_HOST": host,
        }
        place = _place(store, environ, folder)
        _fill(store, place.engine, size, at_once=400)  # a commit has 500 writes at most
        yield place
        store.close()


def _place(store: Documents, environ: dict[str, str], folder: str) -> Place:
    environ |= {
        "LEASEHOLD_CATALOG": "bench.durable_steps",
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
        "LEASEHOLD_ARTIFACTS_SHARED": "yes",
    }
    counting = Counting(store)
    return Place(boot(environ, documents=counting, tasks=OwnTasks()).engine, counting, environ)


def _fill(store: Documents, engine: Engine, size: Size, *, at_once: int) -> None:
    """Write the runs, so many in a commit."""
    runs = _runs(engine, size)
    while batch := list(itertools.islice(runs, at_once)):
        creates = {run_ref(run.run_id): to_document(run) for run in batch}
        _create(store, creates)


def _create(store: Documents | Counting, creates: dict[Ref, Document]) -> None:
    store.transact(run_ref("nobody"), lambda _, __: Write(None, creates=creates))


def _runs(engine: Engine, size: Size) -> Iterator[Manifest]:
    """Tell the runs, the dead among the oldest: half of the active wait, half are held."""
    now = CLOCK.now()
    ids = (f"r-{number:08d}" for number in itertools.count())
    born = (now - _EARLIER - timedelta(seconds=number) for number in itertools.count())
    kinds = [_waiting(engine, now), _held(engine, now)]
    for number, run_id, at in zip(range(size.active), ids, born, strict=False):
        run = kinds[number % 2]
        is_due = number < size.due
        moved = _moved(run, now - _EARLIER if is_due else now + _LATER, engine)
        labels = (COMMON,) if number // 2 % 10 == 0 else ()
        yield _named(moved, run_id, at, labels)
    dead = _dead(engine, now)
    for _, run_id, at in zip(range(size.dead), ids, born, strict=False):
        yield _named(dead, run_id, at, (COMMON, RARE))


def waiting_or_held(place: Place, how_many: int, *, held: bool) -> Iterator[Manifest]:
    """Yield runs that are due: of workers that are not heard of any more, or in a queue."""
    now, engine = CLOCK.now(), place.engine
    run = _held(engine, now) if held else _waiting(engine, now)
    due = _moved(run, now - _EARLIER, engine)
    for number in itertools.islice(_NUMBERS, how_many):
        yield _named(due, f"due-{number:08d}", now - _EARLIER, ())


def put(place: Place, *runs: Iterable[Manifest]) -> None:
    """Write the runs."""
    every = itertools.chain(*runs)
    while batch := list(itertools.islice(every, 400)):
        creates = {run_ref(run.run_id): to_document(run) for run in batch}
        _create(place.counting, creates)


def _named(run: Manifest, run_id: str, at: datetime, labels: Iterable[str]) -> Manifest:
    shard = zlib.crc32(run_id.encode()) % SHARDS
    return replace(run, run_id=run_id, shard=shard, labels=tuple(labels), listed_at=at)


def _moved(run: Manifest, due: datetime, engine: Engine) -> Manifest:
    """Return the run with another alarm, and with what has it."""
    at = run.position
    if at.lease is not None:
        at = replace(at, lease=replace(at.lease, expires_at=due))
    else:
        at = replace(at, dispatch=replace(at.dispatch, not_before=due - engine.rules.grace))
    return replace(run, alarm_at=due, position=at)


def _waiting(engine: Engine, now: datetime) -> Manifest:
    pipeline = engine.catalog.pipeline("no-op")
    new = NewRun(
        run_id="r-0",
        pipeline=pipeline.name,
        plan=pipeline.plan,
        input=KeptValue(text='{"number": 1}'),
        input_digest="0" * 64,
        nonce="0" * 16,
    )
    return lifecycle.start(None, now, rules=engine.rules, new=new).manifest


def _held(engine: Engine, now: datetime) -> Manifest:
    return lifecycle.arrive(
        _waiting(engine, now),
        now,
        rules=engine.rules,
        generation=1,
        lease_id="0" * 16,
        holder="bench+0/1@2",
    ).manifest


def _dead(engine: Engine, now: datetime) -> Manifest:
    held = _held(engine, now)
    fence = Fence("0" * 16, held.fencing_token)
    error = ErrorRecord(type="PermanentError", code="permanent", message="no")
    return lifecycle.fail(
        held, now, rules=engine.rules, fence=fence, error=error, permanent=True
    ).manifest
