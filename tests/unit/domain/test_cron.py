"""The times of a cron expression: the usual ones, and those at a change of the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from leasehold.domain.cron import CronError, parse_cron

ZURICH = ZoneInfo("Europe/Zurich")


def times(cron: str, after: str, count: int, zone: ZoneInfo = ZURICH) -> list[str]:
    begin = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found = islice(parse_cron(cron).after(begin, zone), count)
    return [f"{one:%Y-%m-%dT%H:%M}" for one in found]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 6 * * *", ["2026-01-01T06:00", "2026-01-02T06:00"]),
        ("*/20 6 * * *", ["2026-01-01T06:00", "2026-01-01T06:20"]),
        ("5,10 0-1 * * *", ["2026-01-01T00:05", "2026-01-01T00:10"]),
        ("0 0 1 * *", ["2026-02-01T00:00", "2026-03-01T00:00"]),
        ("0 9 * * mon-fri", ["2026-01-01T09:00", "2026-01-02T09:00"]),
        ("0 9 * * 7", ["2026-01-04T09:00", "2026-01-11T09:00"]),
        ("0 9 13 * fri", ["2026-01-02T09:00", "2026-01-09T09:00"]),
        ("0 0 29 feb *", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("30 * * * *", ["2026-01-01T00:30", "2026-01-01T01:30"]),
        ("0 * * jul *", ["2026-07-01T00:00", "2026-07-01T01:00"]),
    ],
)
def test_the_times_of_a_cron(cron: str, expected: list[str]) -> None:
    assert times(cron, "2026-01-01T00:00", 2, ZoneInfo("UTC")) == expected


def test_a_local_time_that_comes_twice_counts_once_and_one_that_is_left_out_is_made_up_for() -> (
    None
):
    """In Zurich 02:30 comes twice on 25 October 2026, and not at all on 29 March."""
    twice = times("30 2 * * *", "2026-10-24T12:00", 2)
    never = times("30 2 * * *", "2026-03-28T12:00", 2)

    assert twice == ["2026-10-25T00:30", "2026-10-26T01:30"]
    assert never == ["2026-03-29T01:30", "2026-03-30T00:30"]


def test_an_interval_goes_on_through_a_change_of_the_clock() -> None:
    assert times("0 * * * *", "2026-10-24T23:30", 3) == [
        "2026-10-25T00:00",
        "2026-10-25T01:00",
        "2026-10-25T02:00",
    ]
    assert times("*/30 * * * *", "2026-03-29T00:15", 3) == [
        "2026-03-29T00:30",
        "2026-03-29T01:00",
        "2026-03-29T01:30",
    ]


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 6 * *", "4 fields"),
        ("60 6 * * *", "'60' is not from 0 to 59"),
        ("0 6 30 feb *", "never fires"),
        ("0 6 * * funday", "'funday' is not from 0 to 7"),
        ("*/0 6 * * *", "no step from 1 to 59"),
        ("9-5 6 * * *", "ends before it begins"),
        ("٣ 6 * * *", "is not from 0 to 59"),
        ("", "0 fields"),
    ],
)
def test_other_texts_are_refused(cron: str, says: str) -> None:
    with pytest.raises(CronError, match=says):
        parse_cron(cron)
