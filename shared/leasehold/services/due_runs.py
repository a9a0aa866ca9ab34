"""The runs whose alarm is due: those with leases by themselves, and fair between the shards."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any, Final

from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.status import RunStatus
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Query, Range, Snapshot
from leasehold.services.engine import Engine
from leasehold.services.paging import pages

#: How many runs of a shard are read at once, and so are in memory.
PAGE: Final = 100

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

    def leased(self) -> Iterator[Snapshot]:
        """Yield each run that has a lease, as far as the store answers.

        Where it does not, `failure` says so.
        """
        try:
            for found in self._pages(status=RunStatus.IN_PROGRESS.value):
                self._seen.add(found.ref.id)
                yield found
        except StoreUnavailableError as error:  # after a deploy its index may still be built
            self.failure = error

    def others(self) -> Iterator[Snapshot]:
        """Yield each run that `leased` did not, as far as the store answers."""
        try:
            for found in self._pages():
                if found.ref.id not in self._seen:
                    yield found
        except StoreUnavailableError as error:  # what was begun still gets its tasks
            self.failure = error

    def _pages(self, **equal: Any) -> Iterator[Snapshot]:
        """Yield the runs that fit, a page of each shard in turn, the oldest alarm of it first."""
        below = self.engine.clock.now() + _A_MOMENT
        shards = deque(
            pages(
                self.engine.documents,
                Query(
                    "runs",
                    order_by="alarmAt",
                    equal={"shard": (self.first + place) % SHARDS, **equal},
                    range=Range("alarmAt", below=below),
                    limit=PAGE,
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
