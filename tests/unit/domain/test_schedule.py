"""Each time of a schedule is started, or missed where a process attends to it too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from leasehold.domain.schedule import Fate, ScheduleState, decide
from leasehold.registry.schedules import ScheduleEntry

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("catch_up_s", "late_s", "fate"),
    [
        (0, 120, Fate.STARTING),
        (0, 121, Fate.MISSED),
        (600, 720, Fate.STARTING),
        (600, 721, Fate.MISSED),
    ],
)
def test_a_time_is_missed_two_minutes_after_it_can_be_caught_up(
    catch_up_s: int, late_s: int, fate: Fate
) -> None:
    """A sweep comes each minute, and may be late: without them no time would ever be started."""
    catch_up = timedelta(seconds=catch_up_s)
    entry = ScheduleEntry("hourly", pipeline="p", cron="0 * * * *", catch_up=catch_up)
    half_past = NOON - timedelta(minutes=30)
    state = ScheduleState(name="hourly", cron=entry.cron, tz="UTC", decided=half_past)

    decided = decide(state, entry, NOON + timedelta(seconds=late_s), is_live=False)

    assert [(line.time, line.fate) for line in decided.lines] == [(NOON, fate)]
