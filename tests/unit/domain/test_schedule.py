"""Each time of a schedule is started, or missed where a process attends to it too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from leasehold.domain.schedule import (
    MAX_TIMES_KEPT,
    Fate,
    ScheduleState,
    decide,
    failed,
    free_second,
    next_look,
    ordered,
    recorded,
)
from leasehold.registry.schedules import ScheduleEntry

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("catch_up_s", "late_s", "fate"),
    [
        (0, 0, Fate.STARTING),
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


@pytest.mark.parametrize(
    ("paused", "is_live", "starting"),
    [(True, False, None), (False, True, None), (False, False, NOON)],
)
def test_a_time_that_is_buffered_begins_once_the_run_before_is_over_and_no_pause_is_left(
    paused: bool, is_live: bool, starting: datetime | None
) -> None:
    """The run before it may end while a person wants nothing to begin."""
    entry = ScheduleEntry("hourly", pipeline="p", cron="0 * * * *", overlap="buffer_one")
    state = ScheduleState(
        name="hourly", cron=entry.cron, tz="UTC", decided=NOON, buffered=NOON, paused=paused
    )

    decided = decide(state, entry, NOON + timedelta(minutes=5), is_live=is_live)

    assert decided.starting == starting
    assert (next_look(state, entry), decided.buffered) == (None, None if starting else NOON)


@pytest.mark.parametrize("tz", ["UTC", "Asia/Tokyo"])
def test_a_schedule_of_another_time_zone_has_no_time_of_the_past(tz: str) -> None:
    """Nine in Tokyo was due before the deploy that names it, which would start a run at once."""
    entry = ScheduleEntry(
        "daily", pipeline="p", cron="0 9 * * *", tz=tz, catch_up=timedelta(days=1)
    )
    state = ScheduleState(
        name="daily", cron=entry.cron, tz="Europe/Berlin", decided=NOON - timedelta(hours=4)
    )

    decided = decide(state, entry, NOON, is_live=False)

    assert (decided.tz, decided.decided, decided.lines) == (tz, NOON, ())


def test_an_order_takes_the_time_of_no_cron() -> None:
    """The run of that minute would have its key, and never begin."""
    state = ScheduleState(name="hourly", cron="0 * * * *", tz="UTC", decided=NOON)

    assert free_second(state, NOON) == NOON + timedelta(seconds=1)


def test_a_start_that_succeeds_at_last_leaves_no_problem() -> None:
    state = ordered(
        ScheduleState(name="hourly", cron="0 * * * *", tz="UTC", decided=NOON),
        NOON,
        NOON,
        reason="",
    )
    broken = failed(state, NOON, "no such pipeline")

    found = recorded(broken, NOON, "r-1", NOON)

    assert (broken.problem, found.problem) == ("no such pipeline", "")
    assert (found.starting, found.last_run_id, found.lines[-1].run_id) == (None, "r-1", "r-1")


def test_a_schedule_keeps_its_newest_records() -> None:
    """Its document is written at each of its times, for years."""
    state = ScheduleState(name="hourly", cron="0 * * * *", tz="UTC", decided=NOON)
    for number in range(MAX_TIMES_KEPT + 1):
        state = ordered(state, NOON + timedelta(seconds=number), NOON, reason="by ada")

    assert [line.time.second for line in state.lines[::49]] == [1, 50]
