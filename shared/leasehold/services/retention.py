"""Retention: the old runs that a sweep deletes.

Ended runs are purged some days after their end, a few at each sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from leasehold.errors import LeaseholdError
from leasehold.ports.documents import Snapshot
from leasehold.services.engine import Engine
from leasehold.services.paging import place_behind
from leasehold.services.purge import Purge
from leasehold.services.read_runs import RunFilter, query_of

#: How many old runs one sweep looks at. Most of them go; some stay, such as those that are live.
LOOKED_AT: Final = 100

#: A run that was marked less long ago is being deleted, by another process's sweep for example.
MARKED: Final = timedelta(minutes=10)

#: How long until the next look: where there are more, and where all were looked at.
SOON_S: Final = 5.0
LATER_S: Final = 60.0


#: So often what interrupted writes left is looked for: it is not deleted before it is an hour old.
TIDIED_EACH_S: Final = 3600.0


def tidy_up(engine: Engine) -> None:
    """Have the artifacts delete what interrupted writes left, each hour; what fails is for later.

    A process that stores nothing would keep it for as long as it runs.
    """
    retention, now = engine.retention, engine.clock.monotonic()
    if now - retention.tidied_at < TIDIED_EACH_S:
        return
    retention.tidied_at = now
    try:
        engine.threads.errand(engine.artifacts.tidy_up)
    except LeaseholdError as error:
        engine.listeners.log(f"what interrupted writes left is deleted later: {error}")


def forget_old_runs(engine: Engine, over_at: float) -> int:
    """Purge some of the runs that are older than LEASEHOLD_RETENTION_DAYS; return how many.

    It goes on where the last look of this process stopped, and begins again when it came to the
    oldest run: so runs that stay keep none behind them from going. What cannot be purged now is
    logged, and left to a later sweep.

    Args:
        engine: the parts.
        over_at: by the monotonic time, when no further run is begun: one may have many files.
    """
    retention, now = engine.retention, engine.clock.monotonic()
    if retention.after is None or now < retention.not_before:
        return 0
    until = engine.clock.now() - retention.after
    query = query_of(RunFilter(until=until))
    work = Purge(engine, RunFilter(), until)
    begun: list[Snapshot] = []
    try:
        found = engine.documents.query(replace(query, limit=LOOKED_AT, after=retention.place))
        if found:  # by the store's time, which is no one's but its own: this machine's may be wrong
            read_at = found[0].read_at
            until = min(until, read_at - retention.after)
            work = Purge(engine, RunFilter(), until, marked_before=read_at - MARKED)
        work.delete(_in_time(engine, found, over_at, begun))
    except LeaseholdError as error:
        engine.listeners.log(f"old runs wait for the next sweep: {error}")
    else:
        is_all = len(begun) == len(found) < LOOKED_AT
        if is_all:
            retention.place = None
        elif begun:
            retention.place = place_behind(begun[-1], query.order_by)
        retention.not_before = now + (LATER_S if is_all else SOON_S)
    return work.result().purged


def _in_time(
    engine: Engine, found: Iterable[Snapshot], over_at: float, begun: list[Snapshot]
) -> Iterator[Snapshot]:
    """Yield runs until the time is over, and note each."""
    for run in found:
        if engine.clock.monotonic() >= over_at:
            return
        begun.append(run)
        yield run
