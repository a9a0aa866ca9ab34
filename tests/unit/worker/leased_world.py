"""Runs under a lease: on a real store whose network a test breaks, in time that the test moves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.attempt.attempt import Attempt
from leasehold.bootstrap import Bundle, boot
from leasehold.domain import lifecycle
from leasehold.domain.change import on_run
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.stored import DecideDocument, Ref
from leasehold.domain.trace import TraceEvent
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Committed, Snapshot
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, arrive
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import FrozenClock


class Network(SqliteDocuments):
    """The store, behind a network that may be slow, be down, or hang for a run or a collection."""

    clock: FrozenClock
    takes = 0.0
    hangs: str | None = None
    is_down = False
    refuses: threading.Thread | None = None

    def __init__(self, path: Path, clock: FrozenClock) -> None:
        super().__init__(path, clock)
        self.clock = clock
        self.may_continue = threading.Event()
        self.hanging = threading.Event()
        self.refused = threading.Semaphore(0)

    def transact(
        self,
        ref: Ref,
        decide: DecideDocument[Any],
        *,
        if_version: Snapshot | None = None,
        is_new: bool = False,
        now: datetime | None = None,
        in_transaction: bool = False,  # noqa: ARG002 - SQLite has one writer at a time
        within: float | None = None,
    ) -> Committed[Any]:
        if self.hangs in (ref.id, ref.collection):
            self.hanging.set()
            self.may_continue.wait(60)
        if threading.current_thread() is self.refuses:
            self.refused.release()
            raise StoreUnavailableError(store="the test", problem="it refuses this writer")
        if self.is_down:
            self.clock.advance(self.takes)
            raise StoreUnavailableError(store="the test", problem="it is down")
        committed = super().transact(
            ref, decide, if_version=if_version, is_new=is_new, now=now, within=within
        )
        self.clock.advance(self.takes)
        if committed.snapshot is None:
            return committed
        # as beyond a network: the time of the store is that of its commit, and ours of the answer
        answered = committed.snapshot._replace(monotonic=self.clock.monotonic())
        return committed._replace(snapshot=answered)


@dataclass
class World:
    """One store and its time; the worker of the test, and what another one may do."""

    clock: FrozenClock
    store: Network
    bundle: Bundle

    @property
    def engine(self) -> Engine:
        return self.bundle.engine

    def acquire(self) -> Committed[Any]:
        run = start_run(self.engine, StartRequest("holds", {"n": 1})).manifest
        return arrive(self.engine, Hint(run.run_id, run.position.dispatch.generation))

    def held(self) -> Attempt:
        """A run whose lease this worker has just got."""
        return self.engine.leases.attempt_of(self.engine, self.acquire())

    def run_of(self, held: Attempt) -> Manifest:
        return get_run(self.engine, held.manifest.run_id)

    def losses(self, held: Attempt) -> list[TraceEvent]:
        events = timeline_of(self.engine, held.manifest.run_id)
        return [event for event in events if event.type == "lease_lost"]

    def cancel(self, held: Attempt) -> None:
        run_id = held.manifest.run_id
        cancel = partial(lifecycle.cancel, rules=self.engine.rules, actor="ann", reason="enough")
        self.store.transact(run_ref(run_id), on_run(run_id, cancel))


@contextlib.contextmanager
def holding(engine: Engine, acquired: Committed[Any]) -> Iterator[Attempt]:
    """Hold the attempt whose lease was just got, while inside."""
    attempt = engine.leases.hold(engine, acquired)
    try:
        yield attempt
    finally:
        engine.leases.let_go(attempt)


@contextlib.contextmanager
def world_of(folder: Path, catalog: Catalog) -> Iterator[World]:
    """Open a world whose store is in a folder; what hangs in it goes on in the end."""
    clock = FrozenClock()
    store = Network(folder / "runs.db", clock)
    environ = {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"}
    bundle = boot(
        environ, catalog=catalog, clock=clock, documents=store, tasks=InProcessTasks(clock)
    )
    yield World(clock, store, bundle)
    store.may_continue.set()
    bundle.close()
