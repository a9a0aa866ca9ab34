"""The two estimates of a percentile agree with lifelines, and hold at their edges."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import venv
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from leasehold.budgets import log_normal, survival
from leasehold.budgets.phases import Phase, estimate
from leasehold.budgets.proposal import BudgetSettings
from leasehold.budgets.samples import AttemptSample, Observation, Outcome
from tests.unit.budgets import lifelines_results
from tests.unit.budgets.lifelines_results import CONFIDENCE, durations

RECORDED = json.loads((Path(__file__).parent / "lifelines.json").read_text())
Z = NormalDist().inv_cdf(CONFIDENCE)
NOW = datetime(2026, 6, 1, tzinfo=UTC)

each_recorded = pytest.mark.parametrize(
    "recorded", RECORDED["estimates"], ids=lambda one: f"{one['how_many']} under {one['limit']} s"
)


def observed(recorded: dict[str, Any]) -> list[Observation]:
    pairs = durations(recorded["seed"], recorded["how_many"], recorded["limit"])
    return [Observation(seconds, censored) for seconds, censored in pairs]


@each_recorded
def test_the_survival_curve_and_its_bound_are_those_of_lifelines(recorded: dict[str, Any]) -> None:
    curve = {one.seconds: one for one in survival.survival_curve(observed(recorded))}

    for seconds, share, upper in recorded["survival"]:
        assert curve[seconds].survival == pytest.approx(share, rel=1e-6)
        assert curve[seconds].upper(Z) == pytest.approx(upper, rel=1e-6)


@each_recorded
def test_percentiles_by_kaplan_and_meier_are_those_of_lifelines(recorded: dict[str, Any]) -> None:
    curve = survival.survival_curve(observed(recorded))

    assert survival.percentile(curve, 0.5) == recorded["p50"]
    assert survival.percentile_bound(curve, 0.5, Z) == recorded["p50_bound"]
    assert survival.percentile(curve, 0.75) == recorded["p75"]
    assert survival.percentile_bound(curve, 0.75, Z) == recorded["p75_bound"]


@each_recorded
def test_the_log_normal_fit_is_that_of_lifelines(recorded: dict[str, Any]) -> None:
    fit = log_normal.fit(observed(recorded))

    assert fit is not None
    assert fit.mu == pytest.approx(recorded["mu"], rel=1e-4)
    assert fit.sigma == pytest.approx(recorded["sigma"], rel=1e-4)
    assert fit.percentile(0.95) == pytest.approx(recorded["log_normal_p95"], rel=1e-3)
    assert var_mu(fit) == pytest.approx(recorded["covariance"][0][0], rel=1e-3)
    assert fit.covariance.h_h * fit.sigma**4 == pytest.approx(
        recorded["covariance"][1][1], rel=1e-3
    )


def var_mu(fit: log_normal.LogNormalFit) -> float:
    """Return the variance of mu = theta / h, by the delta method."""
    by_theta, by_h = fit.sigma, -fit.mu * fit.sigma
    of = fit.covariance
    return by_theta**2 * of.theta_theta + 2 * by_theta * by_h * of.theta_h + by_h**2 * of.h_h


@pytest.mark.nightly
def test_lifelines_still_finds_what_is_recorded(tmp_path: Path) -> None:
    """With the version that was recorded, in its own environment."""
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin/python"
    pinned = f"lifelines=={RECORDED['lifelines']}"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pinned],
        check=True,
    )

    said = subprocess.run(
        [python, "-W", "ignore", lifelines_results.__file__], check=True, capture_output=True
    )

    found = json.loads(said.stdout)["estimates"]
    assert [one["seed"] for one in found] == [one["seed"] for one in RECORDED["estimates"]]
    for fresh, recorded in zip(found, RECORDED["estimates"], strict=True):
        assert fresh["mu"] == pytest.approx(recorded["mu"], rel=1e-4)
        assert fresh["sigma"] == pytest.approx(recorded["sigma"], rel=1e-4)
        assert fresh["p75_bound"] == recorded["p75_bound"]


def test_a_percentile_beyond_all_data_is_unknown() -> None:
    """Four of ten attempts were clipped at 300 s, so the 95th percentile is unknown."""
    curve = survival.survival_curve(
        [Observation(float(seconds)) for seconds in range(10, 70, 10)]
        + [Observation(300, True)] * 4
    )

    assert survival.percentile(curve, 0.6) == 60
    assert survival.percentile(curve, 0.95) is None
    assert survival.percentile_bound(curve, 0.6, Z) is None


def test_a_phase_that_is_censored_when_another_ends_was_at_risk_until_then() -> None:
    curve = survival.survival_curve([Observation(5), Observation(5, True), Observation(9)])

    assert [(one.seconds, one.survival) for one in curve] == [
        (5, pytest.approx(2 / 3)),
        (9, 0),
    ]
    assert curve[-1].upper(Z) == 1


@pytest.mark.parametrize(("how_many", "seconds"), [(10, 9), (100, 90)])
def test_a_percentile_is_not_missed_by_the_rounding_of_products(
    how_many: int, seconds: float
) -> None:
    """Nine of ten ended, and their share is a product that is a trifle too large."""
    curve = survival.survival_curve([Observation(one) for one in range(1, how_many + 1)])

    assert survival.percentile(curve, 0.9) == seconds


@pytest.mark.parametrize(
    "observations",
    [
        [],
        [Observation(5), Observation(7)],
        [Observation(5)] * 20,
        [Observation(300, True)] * 20,
    ],
    ids=["none", "two", "all equal", "all censored"],
)
def test_without_a_spread_there_is_no_fit(observations: list[Observation]) -> None:
    assert log_normal.fit(observations) is None


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e6])
def test_a_fit_does_not_depend_on_the_unit(unit: float) -> None:
    """Durations close together and many censored ones far out are the hard cases."""
    near = [Observation(unit * (100 + tenth / 10)) for tenth in range(20)]
    far = [Observation(unit * 5000, True)] * 30

    fit = log_normal.fit(near + far)

    assert fit is not None
    assert fit.percentile(0.5) / unit == pytest.approx(8817, rel=0.001)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(4, 2.132), (9, 1.833), (19, 1.729), (120, 1.658)]
)
def test_the_quantile_of_student_is_that_of_the_tables(degrees: int, quantile: float) -> None:
    assert log_normal.student_quantile(0.95, degrees) == pytest.approx(quantile, abs=0.003)


@pytest.mark.parametrize("how_many", [20, 60, 200])
def test_the_bound_of_the_fit_is_above_the_percentile_as_often_as_it_says(how_many: int) -> None:
    """Of 400 draws, each clipped at the true percentile as a limit would do it."""
    true_p95 = math.exp(math.log(120) + NormalDist().inv_cdf(0.95) * 0.8)

    above = sum(bound_of(seed, how_many, true_p95) >= true_p95 for seed in range(400))

    assert above / 400 >= 0.92


def bound_of(seed: int, how_many: int, limit: float) -> float:
    draw = random.Random(seed)  # noqa: S311 - no secret
    drawn = [math.exp(draw.gauss(math.log(120), 0.8)) for _ in range(how_many)]
    fit = log_normal.fit([Observation(min(one, limit), one > limit) for one in drawn])
    assert fit is not None
    return fit.percentile_bound(0.95, 0.95)


def test_the_interpreter_needs_no_numerical_package() -> None:
    """A function that derives limits starts cold as often as it is called."""
    code = "import leasehold.budgets.log_normal, sys; print('numpy' in sys.modules)"

    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert said.stdout == "False\n"


@pytest.mark.parametrize(
    ("seconds", "larger"),
    [
        ([float(one) for one in range(1, 201)], "model"),
        ([10.0 + one / 100 for one in range(180)] + [900.0 + one for one in range(20)], "data"),
    ],
    ids=["a short tail", "two kinds"],
)
def test_the_larger_of_both_bounds_counts_and_the_smaller_is_agreed(
    seconds: list[float], larger: str
) -> None:
    """A model may not fit, and data may not reach far enough."""
    samples = [AttemptSample(NOW, Outcome.SUCCESS, 1.0, one) for one in seconds]

    found = estimate(samples, Phase.EXECUTION, BudgetSettings())

    assert found is not None
    bounds = {"model": found.log_normal_bound or 0.0, "data": found.kaplan_meier_bound or 0.0}
    assert max(bounds, key=lambda one: bounds[one]) == larger
    assert (found.agreed, found.bound) == (min(bounds.values()), max(bounds.values()))
