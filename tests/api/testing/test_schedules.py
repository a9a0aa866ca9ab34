"""A test moves the clock, and sees what its schedules start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from leasehold import Registry, ScheduleEntry, testing
from leasehold.registry.pipelines import Catalog
from leasehold.testing import FrozenClock
from tests.api.testing import letters

NIGHTLY = ScheduleEntry(
    "nightly",
    pipeline="letters",
    cron="0 6 * * *",
    tz="Europe/Zurich",
    input={"words": ["one"]},
    catch_up=timedelta(hours=6),
)


def test_a_schedule_starts_its_runs_as_the_clock_moves(tmp_path: Path) -> None:
    """On 29 March 2026 clocks in Zurich go forward: 06:00 is 05:00 UTC before, and 04:00 after."""
    catalog = Catalog(
        letters.STEPS,
        letters.PIPELINES,
        letters.GATES,
        schedules=Registry("schedules", [NIGHTLY]),
    )
    clock = FrozenClock(datetime(2026, 3, 28, 3, tzinfo=UTC))
    with testing.engine(catalog, tmp_path, clock=clock) as engine:
        engine.sweep()
        for _ in range(60):
            engine.advance(timedelta(hours=1))
            engine.sweep()
            engine.run_until_idle()
        lines = engine.schedule("nightly").lines[::-1]

    assert [f"{line.time:%m-%dT%H:%M} {line.fate}" for line in lines] == [
        "03-28T05:00 started",
        "03-29T04:00 started",
        "03-30T04:00 started",
    ]
