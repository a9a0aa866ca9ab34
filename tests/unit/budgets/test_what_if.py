"""The effect of another limit on the attempts of a step, and their histogram."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from leasehold.budgets.histogram import MAX_BUCKETS, histogram
from leasehold.budgets.phases import Phase
from leasehold.budgets.samples import AttemptSample, Outcome
from leasehold.budgets.what_if import thrown_away, what_if

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def attempt(
    bootstrap: float, execution: float | None, outcome: Outcome = Outcome.SUCCESS
) -> AttemptSample:
    return AttemptSample(NOW, outcome, bootstrap, execution)


HISTORY = [
    attempt(10, 50),
    attempt(10, 90),
    attempt(10, 290),
    attempt(10, 590, Outcome.CLIPPED),
    attempt(10, 190, Outcome.INTERRUPTED),
    attempt(10, 490, Outcome.FAILED),
]


def test_a_short_limit_throws_work_away_and_notices_a_hang_sooner() -> None:
    found = what_if(HISTORY, 100)

    assert (found.attempts, found.ended, found.lost_seconds) == (6, 1, 100)
    assert (found.ended_sooner, found.saved_seconds) == (3, 500 + 100 + 400)
    assert found.unknown == 0
    assert found.longer[Phase.BOOTSTRAP] == 0
    assert found.longer[Phase.EXECUTION] == pytest.approx(0.6)
    assert found.longer[Phase.TOTAL] == pytest.approx(0.6)


def test_a_long_limit_ends_none_and_does_not_know_of_those_that_were_clipped_below_it() -> None:
    found = what_if(HISTORY, 900)

    assert (found.ended, found.lost_seconds, found.ended_sooner, found.saved_seconds) == (
        0,
        0,
        0,
        0,
    )
    assert found.unknown == 1


def test_an_attempt_that_takes_as_long_as_the_limit_is_not_ended() -> None:
    assert what_if([attempt(40, 60)], 100).ended == 0
    assert what_if([attempt(40, 60)], 99.9).ended == 1


def test_without_a_complete_duration_there_is_no_estimate() -> None:
    hangs = [attempt(1, 29, Outcome.CLIPPED)] * 5

    longer = what_if(hangs, 10).longer

    assert longer == {Phase.BOOTSTRAP: 0, Phase.EXECUTION: None, Phase.TOTAL: None}
    assert set(what_if([], 10).longer.values()) == {None}
    assert what_if([attempt(1, 2, Outcome.FAILED)], 10).longer[Phase.TOTAL] is None


def test_what_limits_threw_away_is_the_time_of_the_attempts_that_they_ended() -> None:
    assert thrown_away(HISTORY) == (600, 0)
    clipped = replace(HISTORY[3], usd=0.5)
    assert thrown_away([*HISTORY, clipped]) == (1200, 0.5)


def test_money_is_lost_with_the_time_it_was_spent_in() -> None:
    """Of 3 USD of 300 s, a limit of 100 s throws 1 USD away; a hang of 600 s it spares 5 of 6."""
    long, hung = replace(HISTORY[2], usd=3.0), replace(HISTORY[3], usd=6.0)

    found = what_if([HISTORY[0], long, hung], 100)

    assert (found.lost_usd, found.saved_usd) == (pytest.approx(1.0), pytest.approx(5.0))
    assert what_if([long, hung], 900).lost_usd == 0


def test_each_phase_is_in_the_bucket_that_it_does_not_pass() -> None:
    buckets = histogram([attempt(1, 2), attempt(1, 8), attempt(1, 7, Outcome.CLIPPED)])

    complete = {
        phase: [(round(one.up_to_seconds, 1), one.complete[phase]) for one in buckets]
        for phase in Phase
    }
    assert [seconds for seconds, _ in complete[Phase.TOTAL]][:3] == [1.0, 1.2, 1.6]
    assert [one for one in complete[Phase.BOOTSTRAP] if one[1]] == [(1.0, 3)]
    assert [one for one in complete[Phase.EXECUTION] if one[1]] == [(2.4, 1), (9.3, 1)]
    censored = [(round(one.up_to_seconds, 1), one.censored[Phase.EXECUTION]) for one in buckets]
    assert [one for one in censored if one[1]] == [(7.5, 1)]


@pytest.mark.parametrize(
    ("shortest", "longest", "buckets", "last"),
    [
        (1, 2, 5, 2.4),
        (10, 600, 19, 646.2),
        (2, 900, 19, 1024.0),
        (1, 210, 17, 256.0),
        (0, 604_800, 24, 1_048_576.0),
        (0, 0, 1, 0.1),
    ],
)
def test_any_durations_and_limits_fit_on_a_screen(
    shortest: float, longest: float, buckets: int, last: float
) -> None:
    found = histogram([attempt(shortest, shortest)], [longest])

    assert len(found) <= MAX_BUCKETS
    assert (len(found), round(found[-1].up_to_seconds, 1)) == (buckets, last)
    assert found[0].up_to_seconds >= shortest


def test_failures_have_no_histogram() -> None:
    assert histogram([attempt(1, 2, Outcome.FAILED)], [60]) == []
    assert histogram([], [60]) == []
