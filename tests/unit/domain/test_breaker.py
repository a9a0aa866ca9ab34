"""A channel that fails again and again is let alone; one send at a time finds out how it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from leasehold.domain.breaker import (
    Breaker,
    BreakerState,
    after_answer,
    after_failure,
    breaker_of,
    let_one_through,
)
from leasehold.domain.delivery_rules import DeliveryRules

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULES = DeliveryRules()
REST = timedelta(seconds=60)


def failing(times: int) -> Breaker:
    breaker = Breaker(channel="pager")
    for _ in range(times):
        breaker = after_failure(breaker, NOW, rules=RULES)
    return breaker


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    assert failing(4).state(NOW) is BreakerState.CLOSED
    assert failing(5).state(NOW) is BreakerState.OPEN
    answered = after_answer(failing(4), NOW)
    assert after_failure(answered, NOW, rules=RULES).state(NOW) is BreakerState.CLOSED


def test_it_is_half_open_for_one_at_a_time() -> None:
    later = NOW + REST
    breaker = failing(5)
    assert breaker.state(later) is BreakerState.HALF_OPEN

    through = let_one_through(breaker, later, rules=RULES)

    assert through is not None
    assert let_one_through(through, later, rules=RULES) is None
    assert through.state(later) is BreakerState.OPEN


def test_a_probe_that_dies_lets_the_next_one_through() -> None:
    later = NOW + REST
    through = let_one_through(failing(5), later, rules=RULES)
    assert through is not None

    assert let_one_through(through, later + RULES.claim_ttl, rules=RULES) is not None


def test_what_the_probe_comes_to_decides() -> None:
    later = NOW + REST
    through = let_one_through(failing(5), later, rules=RULES)
    assert through is not None

    assert after_answer(through, later).is_new
    assert after_failure(through, later, rules=RULES).open_until == later + REST


def test_an_unreadable_breaker_delays_nothing() -> None:
    odd = {"channel": "pager", "failures": "many", "openUntil": "some day"}
    assert breaker_of("pager", odd) == Breaker(channel="pager")


def test_a_breaker_of_a_clock_that_was_a_year_ahead_lets_one_through() -> None:
    ahead = after_failure(failing(4), NOW + timedelta(days=365), rules=RULES)

    through = let_one_through(ahead, NOW, rules=RULES)

    assert through is not None
    assert through.open_until == NOW + RULES.claim_ttl


def test_a_breaker_of_a_clock_that_was_an_hour_ahead_lets_one_through() -> None:
    ahead = after_failure(failing(4), NOW + timedelta(hours=1), rules=RULES)

    through = let_one_through(ahead, NOW, rules=RULES)

    assert through is not None
    assert let_one_through(through, NOW, rules=RULES) is None


def test_a_breaker_that_is_open_forever_lets_one_through() -> None:
    odd = {"channel": "pager", "failures": 5, "openUntil": "8999-12-31T00:00:00Z"}
    assert breaker_of("pager", odd).state(NOW) is BreakerState.HALF_OPEN
    assert breaker_of("pager", odd | {"openUntil": "9999-12-31T00:00:00Z"}).is_new
