"""The budget engine: what samples say about a limit, and which limit follows, with the reason."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.budgets.derive import derive_budget
from leasehold.budgets.proposal import (
    BudgetProposal,
    BudgetSettings,
    Limit,
    LimitInForce,
    Strategy,
)
from leasehold.budgets.samples import AttemptSample, Outcome

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DECLARED = Limit(720, 600)
APPLIED = BudgetSettings(strategy=Strategy.PHASE_DECOUPLED)


def drawn(
    how_many: int,
    median_s: float = 120,
    *,
    sigma: float = 0.5,
    limit: float = 10_000,
    days: tuple[float, float] = (0, 7),
    seed: int = 1,
) -> list[AttemptSample]:
    """Return attempts of the days before now, clipped where they take longer than the limit."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    found = []
    for _ in range(how_many):
        seconds = median_s * math.exp(draw.gauss(0, sigma))
        outcome = Outcome.CLIPPED if seconds > limit else Outcome.SUCCESS
        ended_at = NOW - timedelta(days=draw.uniform(*days))
        bootstrap = 3 * math.exp(draw.gauss(0, 0.3))
        found.append(AttemptSample(ended_at, outcome, bootstrap, min(seconds, limit)))
    return found


def derived(
    samples: Sequence[object],
    in_force: Limit = DECLARED,
    *,
    hours: float = 24,
    declared: Limit = DECLARED,
    settings: BudgetSettings = APPLIED,
) -> BudgetProposal:
    current = LimitInForce(in_force, since=NOW - timedelta(hours=hours))
    return derive_budget(samples, now=NOW, declared=declared, current=current, settings=settings)


def test_a_step_without_samples_keeps_its_declared_limit() -> None:
    found = derive_budget([], now=NOW, declared=DECLARED, settings=APPLIED)

    assert (found.proposed, found.applied, found.changed_at) == (DECLARED, DECLARED, NOW)
    assert (found.bootstrap, found.execution) == (None, None)
    assert found.reasons == (
        "The limit stays: there are too few complete durations to estimate from.",
    )


def test_five_samples_hardly_move_a_limit() -> None:
    found = derived(drawn(5, median_s=20))

    assert found.proposed == Limit(660, pytest.approx(516, abs=1))


def test_many_samples_leave_nothing_of_the_declared_limit() -> None:
    """The true percentiles are 5 s and 273 s; the buffer is 180 s."""
    found = derived(drawn(5000), Limit(1800, 1700))

    assert found.execution is not None
    assert found.execution.bound == pytest.approx(285, abs=5)
    assert found.proposed == Limit(480, pytest.approx(468, abs=5))


def test_a_limit_that_is_too_short_rises_at_once() -> None:
    found = derived(drawn(200, limit=200), Limit(240, 200), declared=Limit(240, 200), hours=0.1)

    assert found.applied == found.proposed
    assert found.applied.total_seconds == 540
    assert found.changed_at == NOW
    assert found.reasons[0] == (
        "The limit rises at once from 240 s (200 s for execution) to 540 s "
        f"({round(found.applied.execution_seconds, 1):g} s for execution), as the samples ask."
    )
    assert "The declared limit no longer counts: it would clip too many attempts." in found.reasons


def test_a_limit_that_is_too_long_goes_down_slowly() -> None:
    first = derived(drawn(1000), Limit(1500, 1400))
    soon = derived(drawn(1000), Limit(1500, 1400), hours=1)

    assert first.proposed.total_seconds == 540
    assert first.applied == Limit(1200, 1120)
    assert "by at most 20 % a day" in first.reasons[0]
    assert soon.applied == Limit(1500, 1400)
    assert soon.changed_at == NOW - timedelta(hours=1)
    assert soon.reasons[0].startswith("The limit stays at 1500 s (1400 s for execution) for now")


def test_a_limit_goes_down_though_each_hour_allows_less_than_its_rounding() -> None:
    """An hour allows 2 %, and the limit is rounded up to whole minutes: 720 s would stay 720 s."""
    samples, in_force = drawn(300, median_s=20), LimitInForce(Limit(720, 600), since=NOW)
    for hour in range(48):
        found = derive_budget(
            samples,
            now=NOW + timedelta(hours=hour),
            declared=DECLARED,
            current=in_force,
            settings=APPLIED,
        )
        in_force = LimitInForce(found.applied, found.changed_at)

    assert in_force.limit.total_seconds in {480, 540}


def test_a_handler_has_its_percentile_before_it_is_asked_to_end() -> None:
    """A buffer of 10 s would have a clean-up time of two minutes cut executions short."""
    short, long = timedelta(seconds=10), timedelta(minutes=2)
    settings = replace(APPLIED, safety_buffer=short, clean_up=long)

    found = derived(drawn(5000), Limit(240, 200), settings=settings)

    assert found.execution is not None
    assert found.applied.execution_seconds >= found.execution.bound + 120


def test_a_short_limit_goes_down_to_its_target_too() -> None:
    """A fifth of 240 s is less than the minute that limits are rounded up to."""
    settings = replace(APPLIED, safety_buffer=timedelta(seconds=10))
    samples = drawn(100, median_s=10, sigma=0.2)
    totals, in_force = [], LimitInForce(Limit(240, 200), since=NOW)
    for hour in range(24 * 10):
        found = derive_budget(
            samples,
            now=NOW + timedelta(hours=hour),
            declared=DECLARED,
            current=in_force,
            settings=replace(settings, window=timedelta(days=30)),
        )
        in_force = LimitInForce(found.applied, found.changed_at)
        totals.append(in_force.limit.total_seconds)

    assert totals[24] == 240
    assert sorted(set(totals)) == [60, 120, 180, 240]
    assert totals.count(120) >= 24 * 3, "half of it takes the three days of a fifth each"


def test_an_execution_that_is_given_more_time_does_not_hold_the_total_up() -> None:
    """By chance an estimate is higher in many hours; the limit stayed where it was for days."""
    in_force = LimitInForce(Limit(720, 100), since=NOW - timedelta(hours=14))

    found = derive_budget(
        drawn(1000, median_s=20), now=NOW, declared=DECLARED, current=in_force, settings=APPLIED
    )

    assert found.applied.total_seconds == 720
    assert found.applied.execution_seconds > 100
    assert found.changed_at == in_force.since


@pytest.mark.parametrize("settings", [APPLIED, BudgetSettings(Strategy.PHASE_DECOUPLED, 0.9, 0.95)])
def test_three_clipped_in_a_row_double_the_limit(settings: BudgetSettings) -> None:
    """There is nothing to estimate from, and it must not go on like this."""
    clipped = [
        AttemptSample(NOW - timedelta(minutes=one), Outcome.CLIPPED, 2.0, 600.0) for one in range(3)
    ]

    found = derived(clipped, settings=settings)
    again = derived(clipped, found.applied, settings=settings)

    assert found.applied == Limit(1440, 1200)
    assert found.reasons[0] == (
        "The limit doubles from 720 s (600 s for execution) to 1440 s (1200 s for execution): "
        "it clipped the last three attempts."
    )
    assert again.applied == found.applied


def test_a_limit_doubles_no_further_than_the_ladder() -> None:
    clipped = [AttemptSample(NOW, Outcome.CLIPPED, 2.0, 1199.0)] * 3

    assert derived(clipped, Limit(1260, 1199)).applied == Limit(1800, 1799)


@pytest.mark.parametrize("strategy", [Strategy.PROPOSE, Strategy.PHASE_DECOUPLED])
def test_attempts_that_hang_are_told_also_where_no_limit_is_longer(strategy: Strategy) -> None:
    clipped = [AttemptSample(NOW, Outcome.CLIPPED, 2.0, 1799.0)] * 3

    found = derived(clipped, Limit(1800, 1799), settings=BudgetSettings(strategy))

    assert found.clips_in_a_row
    assert (
        "The limit in force clipped each of the last three attempts. Where they hang, no limit "
        "helps them."
    ) in found.reasons
    if strategy is Strategy.PHASE_DECOUPLED:
        assert found.reasons[0] == (
            "The limit stays at 1800 s (1799 s for execution), the longest that is derived."
        )


def test_an_hour_of_a_dead_provider_does_not_teach_that_attempts_are_short() -> None:
    """Failures say nothing about how long a result takes."""
    failed = [AttemptSample(NOW, Outcome.FAILED, 2.0, 0.1)] * 500

    with_failures, without = derived([*drawn(100), *failed]), derived(drawn(100))

    assert with_failures.applied == without.applied
    assert with_failures.counts.failures == 500


def test_an_interrupted_attempt_would_have_taken_longer() -> None:
    """Ten deploys a day cut off what takes long; the percentile is not what they let through."""
    whole = drawn(400)
    cut = [
        one
        if (one.execution_seconds or 0) < 150
        else AttemptSample(one.ended_at, Outcome.INTERRUPTED, one.bootstrap_seconds, 150.0)
        for one in whole
    ]

    found, true = derived(cut), derived(whole)

    assert found.execution is not None
    assert true.execution is not None
    assert found.execution.log_normal == pytest.approx(true.execution.log_normal, rel=0.1)


def test_estimates_that_differ_too_much_are_only_proposed() -> None:
    """Most take a second and some a minute: no log-normal distribution is so."""
    samples = drawn(270, median_s=1, sigma=0.1) + drawn(30, median_s=60, sigma=0.1, seed=2)
    no_buffer = BudgetSettings(Strategy.PHASE_DECOUPLED, safety_buffer=timedelta(0))

    found = derived(samples, settings=no_buffer)
    above = derived(samples, Limit(60, 5), declared=Limit(60, 5), settings=no_buffer)

    assert found.only_proposed
    assert found.applied == DECLARED
    assert found.reasons[0].endswith("one estimate asks for more than 1.5 times the other.")
    assert above.only_proposed
    assert above.applied.execution_seconds == pytest.approx(found.execution.agreed)


def test_on_a_drift_the_last_day_counts() -> None:
    """Everything takes three times as long since yesterday. A week would hide it for days."""
    before = drawn(600, days=(1, 7))
    today = drawn(100, median_s=360, limit=600, days=(0, 1), seed=2)

    found = derived([*before, *today])

    assert found.has_drifted
    assert found.window == timedelta(days=1)
    assert found.counts.learnt_from == 100
    assert 1080 <= found.applied.total_seconds <= 1320
    assert any(reason.startswith("Durations changed") for reason in found.reasons)


def test_a_drift_is_seen_against_a_few_older_durations() -> None:
    """Those of the last day are not among what they are compared with, and would hide it."""
    before, today = drawn(40, days=(1, 7)), drawn(400, median_s=160, days=(0, 1), seed=2)

    assert derived([*before, *today]).has_drifted


def test_what_is_older_than_the_window_counts_no_more() -> None:
    found = derived(drawn(100, median_s=1000, days=(7.1, 30)))

    assert (found.counts.learnt_from, found.proposed) == (0, DECLARED)


def test_a_small_window_keeps_the_limit_above_its_longest_success() -> None:
    no_buffer = BudgetSettings(Strategy.PHASE_DECOUPLED, safety_buffer=timedelta(0))
    outlier = AttemptSample(NOW, Outcome.SUCCESS, 3.0, 1000.0, tail_probe=True)

    small = derived([*drawn(40, sigma=0.1), outlier], settings=no_buffer)
    large = derived([*drawn(2000, sigma=0.1), outlier], settings=no_buffer)

    assert small.proposed == Limit(1140, pytest.approx(1100))
    assert "The window is small, so the limit stays above its longest success." in small.reasons
    assert large.proposed.total_seconds < 240


@pytest.mark.parametrize("strategy", [Strategy.FIXED, Strategy.PROPOSE])
def test_a_limit_that_is_not_to_be_applied_is_proposed(strategy: Strategy) -> None:
    found = derived(drawn(1000), settings=BudgetSettings(strategy))

    assert found.proposed.total_seconds == 540
    assert found.applied == DECLARED
    assert found.reasons[0] == (
        f"The declared limit stays in force, as the strategy is {strategy.value}."
    )


def test_samples_that_cannot_be_true_change_nothing_and_are_counted() -> None:
    hostile: list[Any] = [
        AttemptSample(NOW, Outcome.SUCCESS, -1.0, 5.0),
        AttemptSample(NOW, Outcome.SUCCESS, 1.0, math.nan),
        AttemptSample(NOW, Outcome.SUCCESS, 1.0, 365 * 86400.0),
        AttemptSample(NOW + timedelta(days=1), Outcome.SUCCESS, 1.0, 5.0),
        None,
    ]

    found, without = derived([*drawn(100), *hostile]), derived(drawn(100))

    assert (found.proposed, found.applied) == (without.proposed, without.applied)
    assert found.counts.dropped == 5
    assert found.reasons[-1] == "Samples dropped because they cannot be true: 5."


def test_an_estimate_is_said_with_its_samples_and_its_confidence() -> None:
    found = derived(drawn(500, limit=300))

    assert found.execution is not None
    assert found.reasons[2] == (
        "Of 500 first warm attempts, 15 of them cut off, 95 % end their execution within "
        f"{round(found.execution.bound, 1):g} s, with 99 % confidence."
    )


def test_tail_probes_that_hang_are_said() -> None:
    """Where more of them hang than the percentile leaves, the limit rises to the longest one."""
    hung = [AttemptSample(NOW, Outcome.CLIPPED, 2.0, 1799.0, tail_probe=True)] * 2

    found = derived([*drawn(100), *hung])

    assert found.reasons[-1] == (
        "Tail probes that did not end under the longest limit either: 2. "
        "Such attempts hang, and no limit helps them."
    )
