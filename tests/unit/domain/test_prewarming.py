"""Instances are proposed to be kept warm where cold starts are long and many, and not else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from leasehold.doctor.proposals import ColdStart, Prewarming, prewarming

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def starts(*minutes: float, seconds: float = 8.0) -> list[ColdStart]:
    return [
        ColdStart(NOON + timedelta(minutes=each), timedelta(seconds=seconds)) for each in minutes
    ]


def test_as_many_are_proposed_as_begin_together_in_a_usual_burst() -> None:
    bursts = [minute for quarter in range(7) for minute in [quarter * 15.0] * 3]
    one_crowd = [120.0] * 30

    found = prewarming(starts(*bursts, *one_crowd), most=40)

    assert found == Prewarming(3, timedelta(seconds=8), 51, 25.5)


def test_no_more_are_proposed_than_there_may_be() -> None:
    found = prewarming(starts(*[0.0] * 30), most=4)

    assert found is not None
    assert found.instances == 4


def test_short_waits_are_no_reason_and_one_long_one_among_many_is_none() -> None:
    short = starts(*[0.0] * 30, seconds=4.9)

    assert prewarming(short, most=40) is None
    assert prewarming([*short, *starts(0.0, seconds=60)], most=40) is None


def test_few_cold_starts_are_no_reason() -> None:
    assert prewarming(starts(*[0.0] * 19), most=40) is None
    assert prewarming([], most=40) is None
    each_two_hours = [120.0 * number for number in range(30)]
    assert prewarming(starts(*each_two_hours), most=40) is None


def test_what_counts_is_how_long_the_slowest_of_twenty_take() -> None:
    """The median of them is short: those who wait long are who prewarming is for."""
    short, long = starts(*[0.0] * 18, seconds=1), starts(0.0, 0.0, seconds=9)

    found = prewarming([*long, *short], most=40)

    assert found is not None
    assert found.p95 == timedelta(seconds=9)
