"""Rates: never more than the limit in any 60 seconds, whatever is asked for, and when."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from leasehold.domain.rate import SPAN_S, Rate, grant, is_led, parts_of

NOW = datetime(2026, 1, 1, 12, 0, 2, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_turns_are_handed_out_up_to_the_limit() -> None:
    first = grant(Rate(key="k"), NOW, 10, 4)
    second = grant(first.rate, at(1), 10, 8)
    third = grant(second.rate, at(2), 10, 1)

    assert (first.turns, second.turns, third.turns) == (4, 6, 0)
    assert first.until == at(3), "a share is over with its five seconds"
    assert third.next_at == at(63)
    assert grant(third.rate, third.next_at, 10, 99).turns == 10


@pytest.mark.parametrize("most", [1, 7, 60])
def test_no_sixty_seconds_have_more(most: int) -> None:
    """Each turn is used at the very beginning or end of the time in which it may be."""
    chance = random.Random(7)  # noqa: S311 - no secret
    rate, used = Rate(key="k"), []
    seconds = 0.0
    for _ in range(3000):
        seconds += chance.choice((0.0, 0.01, 0.3, 2.0, 11.0))
        granted = grant(rate, at(seconds), most, chance.randint(1, most))
        rate = granted.rate
        left = (granted.until - at(seconds)).total_seconds()
        used += [seconds + chance.choice((0.0, left - 0.001)) for _ in range(granted.turns)]
        assert len(rate.granted) <= 13

    used.sort()
    for place, begun in enumerate(used):
        within = sum(one < begun + 60 for one in used[place : place + most + 1])
        assert within <= most


def test_steady_use_gets_twelve_parts_of_thirteen() -> None:
    rate, count = Rate(key="k"), 0
    for second in range(60 * 13):
        granted = grant(rate, at(second), 60, 60)
        rate, count = granted.rate, count + granted.turns

    assert count >= 60 * 12
    assert SPAN_S == 5


def test_a_clock_that_is_set_back_hands_out_no_more() -> None:
    before = grant(Rate(key="k"), at(590), 5, 2)
    granted = grant(before.rate, at(600), 5, 5)
    refused = grant(granted.rate, NOW, 5, 5)
    again = grant(refused.rate, at(1), 5, 5)

    assert (granted.turns, refused.turns, again.turns) == (3, 0, 0)
    assert (refused.is_changed, again.is_changed) == (True, False)


def test_and_hands_out_turns_again_within_a_minute_and_a_span() -> None:
    """Else a machine whose clock was an hour ahead would call no run for an hour."""
    granted = grant(Rate(key="k"), at(3600), 5, 5)
    refused = grant(granted.rate, NOW, 5, 5)

    assert refused.next_at == at(63)
    assert grant(refused.rate, at(62), 5, 5).turns == 0
    assert grant(refused.rate, refused.next_at, 5, 5).turns == 5


def test_a_turn_that_a_clock_set_back_put_far_ahead_has_no_run_wait_for_it() -> None:
    led = Rate(key="k", lead_at=at(30))

    assert not is_led(Rate(key="k"), NOW)
    assert is_led(led, NOW)
    assert is_led(led, at(39))
    assert not is_led(led, at(41))
    assert not is_led(led, at(-60))


def test_a_document_has_no_more_than_a_turn_a_second() -> None:
    assert parts_of(1) == [1]
    assert parts_of(60) == [60]
    assert parts_of(61) == [31, 30]
    assert sum(parts_of(600)) == 600
    assert len(parts_of(600)) == 10
