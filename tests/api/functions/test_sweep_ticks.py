"""The sweep as Cloud Scheduler calls it: once a minute, and never twice at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from leasehold.bootstrap import boot
from leasehold.services.engine import Engine
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock
from tests.worlds.swept import Queue, of_a_dead_worker, put, waiting

TICK: Final = timedelta(minutes=1)
#: How long after the end of its lease a dead worker is noticed at most.
WITHIN: Final = timedelta(seconds=65)


@pytest.fixture
def engine(environ: dict[str, str], clock: FrozenClock) -> Iterator[Engine]:
    """An engine whose queue needs two seconds to say that it has a task."""
    bundle = boot(environ, clock=clock, tasks=Queue(lambda: clock.advance(2)))
    yield bundle.engine
    bundle.close()


@pytest.mark.parametrize("over_after_s", [0.5, 25, 59.9, 60, 75, 130, 149])
def test_a_dead_worker_behind_many_that_wait_is_noticed_by_a_minutes_scheduler(
    engine: Engine, clock: FrozenClock, over_after_s: float
) -> None:
    """Sweeps that take all of their time, and so longer than the minute, are no reason to wait."""
    put(engine, *(waiting(engine, f"r-{number}") for number in range(60)))
    ttl = engine.rules.lease_ttl
    over_after = timedelta(seconds=over_after_s)
    over_at = clock.now() + over_after
    put(engine, of_a_dead_worker(engine, "r-dead", ttl - over_after))
    noticed: list[datetime] = []

    def note(change: Any) -> None:
        if str(change.outcome) == "expired":
            noticed.append(clock.now())

    next_tick = clock.now()
    took: list[timedelta] = []
    while not noticed:
        clock.advance(next_tick - clock.now())
        began = clock.now()
        sweep(replace(engine, listeners=replace(engine.listeners, observe=note)), width=1)
        took.append(clock.now() - began)
        while next_tick <= clock.now():  # a tick that comes while a sweep runs is left out
            next_tick += TICK

    assert max(took) > TICK
    assert over_at <= noticed[0] <= over_at + WITHIN
