"""The percentile of durations by a log-normal distribution, fitted to complete and censored ones.

Sources:
    Tobin, "Estimation of relationships for limited dependent variables" (1958): the likelihood.
    Olsen, "Note on the uniqueness of the maximum likelihood estimator for the Tobit model" (1978):
    in theta = mu / sigma and h = 1 / sigma its logarithm is concave, so Newton's method finds the
    one maximum.
    Meeker and Escobar, "Statistical Methods for Reliability Data" (1998), ch. 8: the delta method.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final, NamedTuple

from leasehold.budgets.samples import Observation
from leasehold.frozen import dataclass

#: With fewer complete durations, or all of them equal, there is no spread to estimate.
MIN_COMPLETE_DURATIONS: Final = 3
_STEPS: Final = 60  # of Newton's method; it takes 5 to 12
_MIN_GAIN: Final = 1e-10  # the gain of likelihood below which a step changes nothing
_MIN_DURATION_S: Final = 1e-3  # a shorter duration counts as this long: its logarithm is finite
_FAR: Final = 30.0  # standard deviations beyond which the normal tail is its series
_NORMAL: Final = NormalDist()


class Covariance(NamedTuple):
    """The covariance of the estimates of theta and h, by the observed information."""

    theta_theta: float
    theta_h: float
    h_h: float


@dataclass(frozen=True, slots=True)
class LogNormalFit:
    """The distribution that makes the durations most likely.

    Args:
        mu: the mean of the logarithm of seconds.
        sigma: its standard deviation.
        covariance: how sure the fit is, in theta = mu / sigma and h = 1 / sigma.
        complete: how many durations were not censored.
    """

    mu: float
    sigma: float
    covariance: Covariance
    complete: int

    def percentile(self, share: float) -> float:
        """Return the seconds within which this share of phases ends."""
        return _exp(self.mu + _NORMAL.inv_cdf(share) * self.sigma)

    def percentile_bound(self, share: float, confidence: float) -> float:
        """Return the upper confidence bound of the percentile, by the delta method.

        The logarithm of the percentile is q = (theta + z) / h. Its variance is g' C g with the
        gradient g = (1 / h, -(theta + z) / h**2). For few samples the fit underestimates sigma:
        by sqrt(n / (n - 1)), and Student's quantile takes the place of the normal one.
        """
        z, h = _NORMAL.inv_cdf(share), 1 / self.sigma
        log_percentile = self.mu + z * self.sigma
        by_theta, by_h = 1 / h, -log_percentile / h
        variance = (
            by_theta**2 * self.covariance.theta_theta
            + 2 * by_theta * by_h * self.covariance.theta_h
            + by_h**2 * self.covariance.h_h
        )
        small = math.sqrt(self.complete / (self.complete - 1))
        spread = z * self.sigma + student_quantile(confidence, self.complete - 1) * math.sqrt(
            max(0.0, variance)
        )
        return _exp(self.mu + small * spread)


def fit(observations: Sequence[Observation]) -> LogNormalFit | None:
    """Return the most likely log-normal distribution, or None where there is no spread."""
    likelihood = _Likelihood.of(observations)
    if likelihood.complete < MIN_COMPLETE_DURATIONS or likelihood.spread <= 0:
        return None
    return _maximum(likelihood)


def student_quantile(confidence: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution, to a few thousandths from 4 degrees on.

    Source: Cornish and Fisher's expansion, Abramowitz and Stegun (1964), 26.7.5.
    """
    z = _NORMAL.inv_cdf(confidence)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


class _Slope(NamedTuple):
    """First and second derivatives of the logarithm of the likelihood."""

    theta: float
    h: float
    theta_theta: float
    theta_h: float
    h_h: float


@dataclass(frozen=True, slots=True)
class _Likelihood:
    """The logarithm of the likelihood, as a function of theta and h.

    A complete duration with logarithm y adds log h - (h y - theta)**2 / 2, a censored one
    log Q(h y - theta), where Q is the upper tail of the normal distribution.

    Args:
        complete: how many durations are complete.
        total: the sum of their logarithms.
        squares: the sum of the squares of their logarithms.
        spread: the sum of the squares of their distances from the mean.
        censored: the logarithms of the censored durations, and how often there is each.
    """

    complete: int
    total: float
    squares: float
    spread: float
    censored: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> _Likelihood:
        logs = [_log(one.seconds) for one in observations if not one.censored]
        censored = Counter(_log(one.seconds) for one in observations if one.censored)
        total = math.fsum(logs)
        mean = total / len(logs) if logs else 0.0
        return cls(
            complete=len(logs),
            total=total,
            squares=math.fsum(y * y for y in logs),
            spread=math.fsum((y - mean) ** 2 for y in logs) if len(set(logs)) > 1 else 0.0,
            censored=tuple(censored.items()),
        )

    def start(self) -> tuple[float, float]:
        """Return theta and h of the complete durations alone."""
        sigma = math.sqrt(self.spread / self.complete)
        return self.total / self.complete / sigma, 1 / sigma

    def value(self, theta: float, h: float) -> float:
        """Return the logarithm of the likelihood; -infinity where h is not above 0."""
        if h <= 0:
            return -math.inf
        distances = h * h * self.squares - 2 * h * theta * self.total + self.complete * theta**2
        tails = math.fsum(count * _log_tail(h * y - theta) for y, count in self.censored)
        return self.complete * math.log(h) - distances / 2 + tails

    def slope(self, theta: float, h: float) -> _Slope:
        """Return the derivatives; d log Q(z) / dz is minus the normal hazard."""
        by_theta = h * self.total - self.complete * theta
        by_h = self.complete / h - h * self.squares + theta * self.total
        by_theta_theta = -float(self.complete)
        by_theta_h = self.total
        by_h_h = -self.complete / h**2 - self.squares
        for y, count in self.censored:
            z = h * y - theta
            hazard = _hazard(z)
            bend = count * hazard * (hazard - z)
            by_theta += count * hazard
            by_h -= count * hazard * y
            by_theta_theta -= bend
            by_theta_h += bend * y
            by_h_h -= bend * y * y
        return _Slope(by_theta, by_h, by_theta_theta, by_theta_h, by_h_h)


def _maximum(likelihood: _Likelihood) -> LogNormalFit | None:
    """Return the fit at the maximum, by Newton's method with halved steps."""
    theta, h = likelihood.start()
    value = likelihood.value(theta, h)
    for _ in range(_STEPS):
        slope = likelihood.slope(theta, h)
        covariance = _inverse(slope)
        if covariance is None:
            return None
        step_theta = covariance.theta_theta * slope.theta + covariance.theta_h * slope.h
        step_h = covariance.theta_h * slope.theta + covariance.h_h * slope.h
        theta, h, better = _climb(likelihood, (theta, h, value), step_theta, step_h)
        if better - value < _MIN_GAIN * (1 + abs(value)):
            return LogNormalFit(theta / h, 1 / h, covariance, likelihood.complete)
        value = better
    return None


def _climb(
    likelihood: _Likelihood, at: tuple[float, float, float], step_theta: float, step_h: float
) -> tuple[float, float, float]:
    """Return theta, h and likelihood after the longest part of the step that gains something."""
    theta, h, value = at
    for halving in range(_STEPS):
        part = 0.5**halving
        there = theta + part * step_theta, h + part * step_h
        found = likelihood.value(*there)
        if found > value:
            return (*there, found)
    return at


def _inverse(slope: _Slope) -> Covariance | None:
    """Return the inverse of the negative second derivatives, or None where there is none."""
    determinant = slope.theta_theta * slope.h_h - slope.theta_h**2
    if not determinant > 0:
        return None
    return Covariance(
        -slope.h_h / determinant, slope.theta_h / determinant, -slope.theta_theta / determinant
    )


def _log(seconds: float) -> float:
    return math.log(max(seconds, _MIN_DURATION_S))


def _exp(logarithm: float) -> float:
    """Return the seconds of a logarithm; infinity where they are too many."""
    try:
        return math.exp(logarithm)
    except OverflowError:
        return math.inf


def _log_tail(z: float) -> float:
    """Return log Q(z), where Q(z) = erfc(z / sqrt 2) / 2; far out by its asymptotic series."""
    if z > _FAR:
        return -z * z / 2 - math.log(z * math.sqrt(2 * math.pi)) + math.log1p(-1 / (z * z))
    return math.log(math.erfc(z / math.sqrt(2)) / 2)


def _hazard(z: float) -> float:
    """Return the density over the tail, phi(z) / Q(z) (the inverse of Mills' ratio)."""
    if z > _FAR:
        return z + 1 / z
    return math.exp(-z * z / 2) * math.sqrt(2 / math.pi) / math.erfc(z / math.sqrt(2))
