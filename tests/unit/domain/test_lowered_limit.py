"""A limit that adapts: what is left of it once its provider takes no more, and when it is whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from leasehold.domain.lowered_limit import LoweredLimit, lowered
from leasehold.domain.slots import takeable

NOW = datetime(2026, 6, 1, tzinfo=UTC)
S, MIN = timedelta(seconds=1), timedelta(minutes=1)
WINDOW = 30 * S


def refused(
    before: LoweredLimit | None,
    now: datetime,
    *,
    most: int = 8,
    began: datetime | None = None,
    after: timedelta = WINDOW,
) -> LoweredLimit | None:
    began = now if began is None else began
    return lowered(before, now, key="gpt", most=most, began=began, retry_after=after)


def halved() -> LoweredLimit:
    found = refused(None, NOW)
    assert found is not None
    return found


def test_it_is_half_until_the_provider_takes_more_and_grows_by_an_eighth_a_minute() -> None:
    limit, whole = halved(), NOW + WINDOW

    assert [limit.most_at(NOW + wait, 8) for wait in (0 * S, WINDOW, WINDOW + 59 * S)] == [4, 4, 4]
    assert [limit.most_at(whole + n * MIN, 8) for n in range(1, 6)] == [5, 6, 7, 8, 8]
    assert [limit.most_at(whole + n * MIN, 600) for n in (0, 1, 4)] == [300, 375, 600]


def test_all_that_are_refused_in_one_window_halve_it_once() -> None:
    limit = halved()

    later = [refused(limit, NOW + wait, began=NOW + wait) for wait in (0 * S, S, 29 * S)]

    assert later == [None] * 3


def test_what_began_before_the_halving_only_puts_its_growth_off() -> None:
    """It says nothing of the number that holds: it began under the one before."""
    limit, now = halved(), NOW + WINDOW + 2 * MIN

    after = refused(limit, now, began=NOW - S)

    assert after is not None
    assert after.lowered_at == limit.lowered_at
    assert [after.most_at(now + wait, 8) for wait in (0 * S, WINDOW, WINDOW + MIN)] == [6, 6, 7]


def test_what_began_since_halves_what_it_has_grown_to() -> None:
    now = NOW + WINDOW + 2 * MIN

    after = refused(halved(), now)

    assert after is not None
    assert (after.most_at(now, 8), after.lowered_at) == (3, now)


def test_it_is_never_below_one() -> None:
    limit, now = None, NOW
    for _ in range(10):
        limit, now = refused(limit, now), now + WINDOW

    assert limit is not None
    assert (limit.most_at(now, 8), limit.most_at(now + 8 * MIN, 8)) == (1, 8)
    assert refused(None, NOW, most=1) is None


def test_a_provider_that_asks_for_a_year_puts_the_growth_off_by_an_hour() -> None:
    limit = refused(None, NOW, after=timedelta(days=365))

    assert limit is not None
    assert limit.grows_from == NOW + timedelta(hours=1)


def test_those_at_work_in_higher_slots_count_as_well() -> None:
    """Of eight, lowered to four, the holders of 6 and 7 leave two free ones as they are."""
    assert takeable([0, 1, 2, 3, 4, 5], 8, 4) == [2, 3]
    assert takeable([0, 3, 4, 5, 6, 7], 8, 4) == [0, 3]
    assert takeable([2], 8, 4) == []
    assert takeable([2, 7], 8, None) == [2, 7]
