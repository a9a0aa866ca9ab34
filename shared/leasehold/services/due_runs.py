"""The runs whose alarm is due: those with leases by themselves, and fair between the shards."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.status import RunStatus
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Query, Range, Snapshot
from leasehold.services.engine import Engine
from leasehold.services.paging import WHOLE_RUNS, pages

#: A lease is fresh that was over no longer ago than two sweeps of a minute's Scheduler.
FRESH: Final = timedelta(minutes=2)

#: Stores keep times to the microsecond: what is due now is below the next one.
_A_MOMENT: Final = timedelta(microseconds=1)


@dataclass(slots=True)
class DueRuns:
    """Reads the runs whose alarm is due, as they are asked for.

    Args:
        engine: the parts.
        first: the shard to begin with. Each sweep has another one: a sweep whose time is over
            would otherwise never come to those behind a long backlog.

    Attributes:
        documents_read: how many documents the store gave so far.
        failure: why the store could not be asked for all of them, if so.
    """

    engine: Engine
    first: int
    documents_read: int = 0
    failure: StoreUnavailableError | None = None
    _seen: set[str] = field(default_factory=set)

    def leased(self, is_held_up: Callable[[], bool] = lambda: False) -> Iterator[Snapshot]:
        """Yield each run that has a lease, as far as the store answers.

        Where it does not, `failure` says so.

        Args:
            is_held_up: whether one could not be written. Those whose lease was over long ago are
                what earlier sweeps could not write either: the fresh ones come before the rest.
        """
        yield from self._unseen(self._leases(is_held_up))

    def leased_lately(self) -> Iterator[Snapshot]:
        """Yield each run whose lease is over since, as `leased` does."""
        yield from self._unseen(self._fresh_leases())

    def others(self) -> Iterator[Snapshot]:
        """Yield each run that was not yielded yet, as far as the store answers."""
        yield from self._unseen(self._pages())

    def _unseen(self, found_runs: Iterator[Snapshot]) -> Iterator[Snapshot]:
        try:
            for found in found_runs:
                if found.ref.id not in self._seen:
                    self._seen.add(found.ref.id)
                    yield found
        except StoreUnavailableError as error:  # what was begun still gets its tasks
            self.failure = error  # after a deploy the index of leases may still be built

    def _leases(self, is_held_up: Callable[[], bool]) -> Iterator[Snapshot]:
        oldest_first = self._pages(status=RunStatus.IN_PROGRESS.value)
        for found in oldest_first:
            yield found
            if is_held_up():
                yield from self._fresh_leases()
                break
        yield from oldest_first

    def _fresh_leases(self) -> Iterator[Snapshot]:
        since = self.engine.clock.now() - FRESH
        return self._pages(since=since, status=RunStatus.IN_PROGRESS.value)

    def _pages(self, *, since: datetime | None = None, **equal: Any) -> Iterator[Snapshot]:
        """Yield the runs that fit, a page of each shard in turn, the oldest alarm of it first."""
        below = self.engine.clock.now() + _A_MOMENT
        shards = deque(
            pages(
                self.engine.documents,
                Query(
                    "runs",
                    order_by="alarmAt",
                    equal={"shard": (self.first + place) % SHARDS, **equal},
                    range=Range("alarmAt", at_least=since, below=below),
                    limit=WHOLE_RUNS,
                ),
            )
            for place in range(SHARDS)
        )
        while shards:
            shard = shards.popleft()
            for page in islice(shard, 1):
                self.documents_read += len(page)
                yield from page
                shards.append(shard)
