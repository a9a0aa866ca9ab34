"""The formula of the strategy `phase_decoupled`, and the rules that move a limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from leasehold.budgets import limits
from leasehold.budgets.phases import Phase, estimate, share_longer_than
from leasehold.budgets.proposal import BudgetSettings, Limit, LimitInForce
from leasehold.budgets.samples import AttemptSample, Observation, Outcome
from leasehold.budgets.survival import has_drifted, log_rank_z

NOW = datetime(2026, 6, 1, tzinfo=UTC)
SETTINGS = BudgetSettings()


@pytest.mark.parametrize(
    ("bootstrap_s", "execution_s", "buffer_s", "granularity_s", "total_s", "budget_s"),
    [
        (95.4, 420, 180, 1, 696, 600),
        (95.4, 420, 180, 60, 720, 600),
        (0.5, 420, 180, 60, 660, 600),
        (60, 480, 180, 60, 720, 660),
        (0.2, 0.1, 0, 60, 60, 0.1),
        (10, 5, -30, 60, 0, 0),
    ],
)
def test_the_formula_of_the_strategy_phase_decoupled(
    bootstrap_s: float,
    execution_s: float,
    buffer_s: float,
    granularity_s: float,
    total_s: float,
    budget_s: float,
) -> None:
    limit = limits.phase_decoupled(bootstrap_s, execution_s, buffer_s, granularity_s)

    assert limit == Limit(total_s, budget_s)


@pytest.mark.parametrize(
    ("percentile", "confidence", "samples"), [(0.95, 0.64, 20), (0.95, 0.95, 59), (0.95, 0.99, 90)]
)
def test_the_longest_sample_reaches_the_percentile_surely_with_so_many(
    percentile: float, confidence: float, samples: int
) -> None:
    assert limits.samples_for_the_longest(percentile, confidence) == samples


@pytest.mark.parametrize(
    ("samples", "total_s"), [(0, 900), (1, 838), (20, 424), (180, 232), (20_000, 200)]
)
def test_a_new_step_starts_at_the_declared_limit_and_leaves_it_without_a_jump(
    samples: int, total_s: float
) -> None:
    limit = limits.with_prior(Limit(200, 100), Limit(900, 600), samples)

    assert round(limit.total_seconds) == total_s


@pytest.mark.parametrize(
    ("hours", "total_s"),
    [(0, 1000), (12, 894), (24, 800), (24 * 30, 800), (-5, 1000)],
    ids=["at once", "half a day", "a day", "a month", "a clock that went back"],
)
def test_a_limit_goes_down_by_a_fifth_a_day(hours: float, total_s: float) -> None:
    current = LimitInForce(Limit(1000, 500), since=NOW - timedelta(hours=hours))

    lowered = limits.lowered(Limit(100, 50), current, NOW, SETTINGS)
    assert round(lowered.total_seconds) == total_s


@pytest.mark.parametrize(
    ("days", "total_s"),
    [(1, 192), (1.2, 192), (1.3, 180), (30, 180)],
    ids=["a day", "too soon for a step", "a step", "no more than a step"],
)
def test_a_limit_goes_down_a_step_of_its_rounding_that_is_more_than_a_fifth(
    days: float, total_s: float
) -> None:
    """A fifth of 240 s is less than a minute: rounded up to minutes it never changes."""
    current = LimitInForce(Limit(240, 120), since=NOW - timedelta(days=days))

    lowered = limits.lowered(Limit(60, 30), current, NOW, SETTINGS)
    assert round(lowered.total_seconds) == total_s


def test_a_limit_goes_down_no_further_than_to_its_target() -> None:
    current = LimitInForce(Limit(1000, 500), since=NOW - timedelta(days=1))

    assert limits.lowered(Limit(900, 450), current, NOW, SETTINGS) == Limit(900, 450)


@pytest.mark.parametrize(
    ("limit", "laddered"),
    [
        (Limit(661, 600), Limit(720, 600)),
        (Limit(3, 1), Limit(60, 1)),
        (Limit(9000, 8000), Limit(1800, 1799)),
        (Limit(600, 600), Limit(600, 599)),
    ],
    ids=["rounded up", "one step of the granularity", "the cap", "below its total"],
)
def test_a_limit_stays_on_the_time_ladder(limit: Limit, laddered: Limit) -> None:
    assert limits.on_the_ladder(limit, SETTINGS) == laddered


def test_a_limit_is_no_shorter_than_the_lowest_rung_however_finely_it_is_rounded() -> None:
    fine = BudgetSettings(rounding_granularity=timedelta(seconds=1))

    assert limits.on_the_ladder(Limit(3, 1), fine) == Limit(15, 1)


def sample(outcome: Outcome, execution_s: float | None, **flags: bool) -> AttemptSample:
    return AttemptSample(NOW, outcome, 2.0, execution_s, **flags)


CLIPPED = sample(Outcome.CLIPPED, 600.0)


@pytest.mark.parametrize(
    ("last", "clips"),
    [
        ([CLIPPED] * 3, True),
        ([sample(Outcome.SUCCESS, 5.0), *[CLIPPED] * 3], True),
        ([*[CLIPPED] * 2, sample(Outcome.INTERRUPTED, 9.0), CLIPPED], True),
        ([*[CLIPPED] * 2, sample(Outcome.SUCCESS, 900.0, tail_probe=True), CLIPPED], True),
        ([CLIPPED] * 2, False),
        ([*[CLIPPED] * 3, sample(Outcome.SUCCESS, 5.0)], False),
        ([sample(Outcome.CLIPPED, 300.0)] * 3, False),
    ],
    ids=[
        "three",
        "the last three",
        "one interrupted between",
        "a tail probe between",
        "two",
        "a success after",
        "clipped by a shorter limit, before",
    ],
)
def test_the_limit_in_force_clipped_the_last_three(last: list[AttemptSample], clips: bool) -> None:
    current = LimitInForce(Limit(660, 600), since=NOW)

    assert limits.clips_in_a_row(last, current, SETTINGS) is clips


@pytest.mark.parametrize(
    ("bootstrap_s", "execution_s", "clean_up_s", "clips"),
    [
        (300.0, None, 5, True),
        (1.0, 294.0, 5, True),
        (1.0, 239.0, 60, True),
        (1.0, 150.0, 1000, True),
        (250.0, None, 5, False),
        (1.0, 199.0, 60, False),
    ],
    ids=[
        "it hangs in its bootstrap",
        "it ended when it was asked to",
        "likewise, a minute before its limit",
        "at half of its limit at the earliest",
        "a shorter limit, before",
        "likewise",
    ],
)
def test_a_limit_clips_wherever_its_handler_is_when_it_is_asked_to_end(
    bootstrap_s: float, execution_s: float | None, clean_up_s: float, clips: bool
) -> None:
    """A limit of 480 s leaves a handler less: its rounding is for the settlement."""
    settings = BudgetSettings(clean_up=timedelta(seconds=clean_up_s))
    current = LimitInForce(Limit(480, 190), NOW, handler_seconds=300)
    last = AttemptSample(NOW, Outcome.CLIPPED, bootstrap_s, execution_s)

    assert limits.clips_in_a_row([last] * 3, current, settings) is clips


def test_a_handler_has_twice_its_time_under_a_limit_that_is_doubled() -> None:
    """Its bootstrap of 110 s has not changed, and is added to its execution again."""
    current = LimitInForce(Limit(480, 190), NOW, handler_seconds=300)

    assert limits.doubled(current) == Limit(960, 490)


def test_a_limit_is_refuted_by_more_clips_than_the_percentile_leaves() -> None:
    """One in ten takes longer: too many for the 95th percentile, not for the 80th."""
    samples = [*[sample(Outcome.SUCCESS, 100.0)] * 9, CLIPPED]

    assert limits.clips_too_many(Limit(400, 300), samples, 0.95)
    assert not limits.clips_too_many(Limit(400, 300), samples, 0.8)
    assert share_longer_than(samples, Phase.EXECUTION, 300) == pytest.approx(0.1)
    assert share_longer_than([], Phase.EXECUTION, 300) == 0


def test_a_limit_is_refuted_by_the_clips_of_its_execution_alone() -> None:
    samples = [*[sample(Outcome.SUCCESS, 100.0)] * 9, sample(Outcome.SUCCESS, 600.0)]

    assert limits.clips_too_many(Limit(1000, 300), samples, 0.95)
    assert not limits.clips_too_many(Limit(1000, 700), samples, 0.95)


def test_only_a_success_shows_how_long_a_result_takes() -> None:
    """A limit above what was clipped would rise each time that it clips."""
    found = limits.above_the_longest([CLIPPED, sample(Outcome.SUCCESS, 98.0)])

    assert found == Limit(pytest.approx(110), pytest.approx(107.8))


def test_a_cold_start_that_is_rare_is_estimated_apart() -> None:
    """One attempt in five is cold, with ten times the bootstrap: half of it would be clipped."""
    warm = [AttemptSample(NOW, Outcome.SUCCESS, 2 + one / 100, 60.0 + one) for one in range(100)]
    cold = [AttemptSample(NOW, Outcome.SUCCESS, 40.0 + one, 60.0, cold=True) for one in range(25)]

    together = estimate([*warm, *cold], Phase.BOOTSTRAP, SETTINGS)
    few = estimate([*warm, *cold[:19]], Phase.BOOTSTRAP, SETTINGS)

    assert together is not None
    assert (together.group, together.observations) == ("first cold", 25)
    assert 60 < together.bound < 90
    assert few is not None
    assert (few.group, few.observations) == ("all", 119)


def test_a_group_that_is_too_small_joins_the_largest() -> None:
    warm = [AttemptSample(NOW, Outcome.SUCCESS, 2 + one / 100, 60.0 + one) for one in range(100)]
    cold = [AttemptSample(NOW, Outcome.SUCCESS, 40.0 + one, 60.0, cold=True) for one in range(25)]
    again = [AttemptSample(NOW, Outcome.SUCCESS, 2.0, 500.0, retried=True)] * 10

    found = estimate([*warm, *cold, *again], Phase.EXECUTION, SETTINGS)

    assert found is not None
    assert (found.group, found.observations) == ("first warm", 110)


def test_retries_that_are_enough_are_estimated_apart() -> None:
    """They take ten times as long; among the first attempts their time would be clipped."""
    first = [AttemptSample(NOW, Outcome.SUCCESS, 2.0, 50.0 + one / 10) for one in range(100)]
    again = [
        AttemptSample(NOW, Outcome.SUCCESS, 2.0, 500.0 + one, retried=True) for one in range(20)
    ]

    found = estimate([*first, *again], Phase.EXECUTION, SETTINGS)

    assert found is not None
    assert (found.group, found.observations) == ("retried", 20)


def test_an_attempt_that_was_clipped_in_its_execution_has_a_whole_bootstrap() -> None:
    samples = [
        *[AttemptSample(NOW, Outcome.CLIPPED, 3.0 + one / 10, 600.0) for one in range(10)],
        AttemptSample(NOW, Outcome.CLIPPED, 660.0, None),
    ]

    bootstrap = estimate(samples, Phase.BOOTSTRAP, SETTINGS)

    assert bootstrap is not None
    assert (bootstrap.observations, bootstrap.censored) == (11, 1)
    assert estimate(samples, Phase.EXECUTION, SETTINGS) is None


def test_beyond_the_data_the_model_counts_up_to_twice_the_longest() -> None:
    """Five samples bound a percentile anywhere; a limit of an hour would follow from a minute."""
    samples = [sample(Outcome.SUCCESS, seconds) for seconds in (1.0, 5.0, 20.0, 60.0, 90.0)]

    found = estimate(samples, Phase.EXECUTION, SETTINGS)

    assert found is not None
    assert found.kaplan_meier_bound is None
    assert found.log_normal_bound is not None
    assert found.log_normal_bound > 5_000
    assert (found.agreed, found.bound) == (180, 180)


def test_the_test_for_a_drift_is_the_log_rank_test() -> None:
    """Figures: Freireich's leukaemia trial of 1963 as in Cox (1972), chi-squared 16.79."""
    placebo = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
    treated = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    left = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]

    recent = [Observation(weeks) for weeks in placebo]
    before = [Observation(weeks) for weeks in treated] + [
        Observation(weeks, censored=True) for weeks in left
    ]

    assert log_rank_z(recent, before) ** 2 == pytest.approx(16.79, abs=0.01)
    assert log_rank_z(before, recent) == pytest.approx(-log_rank_z(recent, before))
    assert has_drifted(recent, before)
    assert has_drifted(recent[:20], before)
    assert not has_drifted(recent[:19], before)
    assert not has_drifted(before, before)


def test_durations_that_are_all_the_same_have_not_drifted() -> None:
    """Nothing is left to chance then: the variance is zero."""
    assert not has_drifted([Observation(5.0)] * 30, [Observation(5.0)] * 30)
