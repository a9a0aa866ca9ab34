"""The budget engine on samples of any kind: what always holds for the limit that follows."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from leasehold.budgets.derive import derive_budget
from leasehold.budgets.limits import DOWN_A_DAY
from leasehold.budgets.phases import Phase, estimate
from leasehold.budgets.proposal import (
    BudgetProposal,
    BudgetSettings,
    Limit,
    LimitInForce,
    Strategy,
)
from leasehold.budgets.samples import AttemptSample, Outcome, believable

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DECLARED = Limit(720, 600)
SETTINGS = BudgetSettings(strategy=Strategy.PHASE_DECOUPLED)

durations = st.floats(0, 3000) | st.sampled_from([0.0, 1e-9, 1.0, 600.0, 604_800.0])
lies = st.sampled_from([-1.0, math.nan, math.inf, -math.inf, 365 * 86400.0, "5", None, True])
past = st.timedeltas(timedelta(0), timedelta(days=9)).map(lambda ago: NOW - ago)


def attempts(seconds: st.SearchStrategy, ends: st.SearchStrategy = past) -> st.SearchStrategy:
    return st.builds(
        AttemptSample,
        ended_at=ends,
        outcome=st.sampled_from(Outcome),
        bootstrap_seconds=seconds,
        execution_seconds=seconds,
        cold=st.booleans(),
        retried=st.booleans(),
        tail_probe=st.booleans(),
    )


true_samples = st.lists(attempts(durations), max_size=80)
hostile_samples = st.lists(
    attempts(lies)
    | attempts(durations, st.just(NOW + timedelta(days=1)) | st.just(datetime(2026, 5, 1)))  # noqa: DTZ001
    | st.sampled_from([None, 5, "a sample", {}]),
    max_size=20,
)
limits = st.integers(1, 30).map(lambda minutes: Limit(60.0 * minutes, 60.0 * minutes - 1))
ages = st.timedeltas(timedelta(days=-2), timedelta(days=60))


def derived(
    samples: list, declared: Limit = DECLARED, in_force: LimitInForce | None = None
) -> BudgetProposal:
    return derive_budget(samples, now=NOW, declared=declared, current=in_force, settings=SETTINGS)


@given(true_samples, limits, limits, ages)
def test_a_limit_stays_on_the_ladder_and_goes_down_slowly(
    samples: list[AttemptSample], declared: Limit, current: Limit, age: timedelta
) -> None:
    applied = derived(samples, declared, LimitInForce(current, NOW - age)).applied

    assert 15 <= applied.total_seconds <= 1800
    assert 0 <= applied.execution_seconds < applied.total_seconds
    assert applied.total_seconds >= (1 - DOWN_A_DAY) * current.total_seconds - 1e-6


@given(true_samples, limits, limits, ages)
def test_a_limit_goes_no_higher_than_it_is_proposed_or_doubled(
    samples: list[AttemptSample], declared: Limit, current: Limit, age: timedelta
) -> None:
    found = derived(samples, declared, LimitInForce(current, NOW - age))

    highest = max(found.proposed.total_seconds, 2 * current.total_seconds)
    assert found.applied.total_seconds <= highest
    assert found.changed_at == (NOW if found.applied != current else NOW - age)
    assert all(reason.endswith(".") for reason in found.reasons)


@given(true_samples, hostile_samples, st.randoms(use_true_random=False))
def test_samples_that_cannot_be_true_are_counted_and_change_nothing(
    samples: list[AttemptSample], hostile: list, order: random.Random
) -> None:
    mixed = [*samples, *hostile]
    order.shuffle(mixed)

    found, without = derived(mixed), derived(samples)

    assert found.applied.total_seconds == without.applied.total_seconds
    assert found.proposed.total_seconds == without.proposed.total_seconds
    assert found.counts.dropped == len(mixed) - len(believable(mixed, NOW))
    assert found.counts.dropped >= len(hostile) - len(believable(hostile, NOW))


@given(true_samples, st.sampled_from([Phase.BOOTSTRAP, Phase.EXECUTION]))
def test_the_bound_of_a_phase_is_no_less_than_either_estimate(
    samples: list[AttemptSample], phase: Phase
) -> None:
    learnt = [one for one in samples if one.outcome is not Outcome.FAILED]

    found = estimate(learnt, phase, SETTINGS)

    if found is not None:
        assert 0 <= found.agreed <= found.bound <= 2 * 604_800
        assert found.bound >= (found.kaplan_meier_bound or 0)
        assert (found.kaplan_meier or 0) <= (found.kaplan_meier_bound or math.inf)


@given(st.integers(15, 80), st.floats(1.0, 500), st.integers(2, 8))
def test_a_limit_grows_with_all_durations(how_many: int, seconds: float, times: int) -> None:
    def proposed(factor: float) -> Limit:
        samples = [
            AttemptSample(
                NOW - timedelta(hours=one), Outcome.SUCCESS, 1.0, factor * (seconds + one)
            )
            for one in range(how_many)
        ]
        return derived(samples).proposed

    assert proposed(times).total_seconds >= proposed(1).total_seconds
    assert proposed(times).execution_seconds >= proposed(1).execution_seconds
