"""How soon a sweep comes to the runs of dead workers, whatever stands in its way.

Thousands of runs that only wait in a queue, and a run that is locked, as a worker of another
program may leave it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

from google.cloud.firestore_v1.types import common, firestore

from bench.many_runs import Place, put, waiting_or_held
from bench.measuring import Figure, figure
from leasehold.domain.change import Change
from leasehold.domain.effect import Task
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import run_ref
from leasehold.domain.status import Outcome
from leasehold.services.sweep import LEASE_LOOK_EVERY_S, sweep

WAITING: Final = 2000
HELD: Final = 40
WITHIN_MS: Final = 1000.0

#: A query that finds nothing is paid for as one document: one a shard, and that for deliveries.
_ALLOWANCE: Final = SHARDS + 1


def allowance(took_s: float) -> int:
    """Return how many reads a sweep that took so long may have beside those of what is due.

    One that takes long looks for further leases from time to time.
    """
    return _ALLOWANCE + SHARDS * int(took_s / LEASE_LOOK_EVERY_S)


class PausedQueue:
    """A task queue that delivers nothing, and has whatever it is asked for."""

    def create(self, task: Task) -> None:
        """Take the task."""

    def exists(self, task: Task) -> bool:  # noqa: ARG002 - the port's shape
        """Return True."""
        return True


def behind_those_that_wait(place: Place, of: str, waiting: int = WAITING) -> list[Figure]:
    """Return what the first call reads and recovers, of a dead worker's run behind others."""
    put(place, waiting_or_held(place, waiting, held=False), waiting_or_held(place, 1, held=True))
    seconds: list[float] = []
    engine = replace(
        place.engine,
        tasks=PausedQueue(),
        listeners=replace(place.engine.listeners, observe=_noting(seconds)),
    )
    engine.overrides.read()  # else whether this sweep looks is a matter of time
    before, began = place.counting.reads, time.perf_counter()
    result = sweep(engine)
    reads, took = place.counting.reads - before, time.perf_counter() - began
    assert result.still_queued == waiting, result
    named = f"sweep of a dead worker's run behind {waiting:,} that wait on {of}"
    limit = waiting + 1 + allowance(took)
    return [
        figure(f"recovered: {named}", "runs", [(result.recovered, 1)], at_least=1.0),
        figure(f"reads: {named}", "reads", [(reads, limit)], at_most=1.0),
        figure(f"recovered after: {named}", "ms", [(_ms(seconds, began), WITHIN_MS)], at_most=1.0),
    ]


def beside_a_locked_run(place: Place, held: int = HELD) -> Figure:
    """Return when the last of some dead workers' runs is recovered, beside one that is locked.

    The floor is what the same took without, and a second.
    """
    without = _recovered(place, held)
    beside = _recovered(place, held, with_a_lock=True)
    named = f"last of {held} recovered beside a locked run on Firestore"
    return figure(named, "ms", [(beside, without + WITHIN_MS)], at_most=1.0)


def _recovered(place: Place, held: int, *, with_a_lock: bool = False) -> float:
    """Return the milliseconds until the last recovery."""
    runs = list(waiting_or_held(place, held + with_a_lock, held=True))
    put(place, runs)
    seconds: list[float] = []
    engine = replace(
        place.engine,
        tasks=PausedQueue(),
        listeners=replace(place.engine.listeners, observe=_noting(seconds)),
    )
    lock = (
        locked_for_reading(place.counting.within, runs[0].run_id) if with_a_lock else nullcontext()
    )
    with lock:
        began = time.perf_counter()
        result = sweep(engine)
    assert (result.recovered, result.unattended) == (held, with_a_lock), result
    return _ms(seconds, began)


def _noting(seconds: list[float]) -> Any:
    def note(change: Change) -> None:
        if change.outcome is Outcome.EXPIRED:
            seconds.append(time.perf_counter())

    return note


def _ms(seconds: list[float], began: float) -> float:
    return (max(seconds) - began) * 1000


@contextmanager
def locked_for_reading(documents: Any, run_id: str) -> Iterator[None]:
    """Hold the lock on a run that a transaction has from its read on."""
    connection = documents._connection  # noqa: SLF001 - its client has the transactions
    api, name = connection._client(), connection.name  # noqa: SLF001
    mode = common.TransactionOptions(read_write=common.TransactionOptions.ReadWrite())
    begin = firestore.BeginTransactionRequest(database=name, options=mode)
    begun = api.begin_transaction(begin).transaction
    path = connection.path(run_ref(run_id))
    read = firestore.BatchGetDocumentsRequest(database=name, documents=[path], transaction=begun)
    list(api.batch_get_documents(read))
    try:
        yield
    finally:
        api.rollback(firestore.RollbackRequest(database=name, transaction=begun))
