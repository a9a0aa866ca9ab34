"""Replay limits that learn: how many attempts they clip, and how late a hang is noticed.

Each case draws durations from a known distribution, window by window, clips them at the limit in
force, and derives the next limit from what is left, as a deployment does. So a rule that forgets
what it clipped tightens its limit from window to window, and is seen to do so. The share clipped
is that of the true distribution under the limit, after each window.

The percentile alone is tested: without the safety buffer, and rounded to one second.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from statistics import mean, median, quantiles
from typing import Final, NamedTuple

from bench.measuring import OUT, Figure, report
from leasehold.budgets import survival
from leasehold.budgets.derive import derive_budget
from leasehold.budgets.phases import Phase, observations
from leasehold.budgets.proposal import BudgetSettings, Limit, LimitInForce, Strategy
from leasehold.budgets.samples import AttemptSample, Outcome
from leasehold.budgets.tail_probe import PROBE_EVERY, is_tail_probe

#: The share clipped that is allowed, in percent.
ALLOWED: Final = 5.0
WINDOWS: Final = 8
#: The case with a drift has it before this window.
DRIFT_AT: Final = 4
DAYS: Final = 7  # of a window; a limit is derived once a day
DECLARED: Final = Limit(660, 600)
TOO_SHORT: Final = Limit(165, 150)
SETTINGS: Final = BudgetSettings(
    strategy=Strategy.PHASE_DECOUPLED,
    safety_buffer=timedelta(0),
    rounding_granularity=timedelta(seconds=1),
)
#: Samples a window, and how many replays of each.
SIZES: Final = {20: 40, 100: 40, 1000: 5, 10_000: 1}
TRUE_DRAWS: Final = 20_000
COLD: Final = 0.1
HANGING: Final = 0.02
#: With fewer successes the rules beside the engine leave the limit as it is.
FEWEST: Final = 10
START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Durations(NamedTuple):
    """What an attempt would take, in seconds, if nothing ended it; infinite where it hangs."""

    cold: bool
    bootstrap: float
    execution: float


Draw = Callable[[random.Random], Durations]


@dataclass(frozen=True, slots=True)
class Case:
    """A step: how long its attempts take, before and after a drift, and how many fail."""

    name: str
    draw: Draw
    after_drift: Draw | None = None
    failures: float = 0.0
    declared: Limit = DECLARED

    def draw_in(self, window: int) -> Draw:
        """Return how durations are drawn in this window."""
        return self.after_drift if self.after_drift and window >= DRIFT_AT else self.draw


def log_normal(chance: random.Random, times: float = 1.0) -> Durations:
    """Draw a bootstrap with a median of 3 s and an execution with one of 120 s, sigma 0.8."""
    return Durations(False, times * _drawn(chance, 3, 0.3), times * _drawn(chance, 120, 0.8))


def cold_and_warm(chance: random.Random) -> Durations:
    """Draw one attempt in ten cold: 60 s of bootstrap for 2 s, and 2.5 times the execution."""
    cold = chance.random() < COLD
    bootstrap = _drawn(chance, 60, 0.4) if cold else _drawn(chance, 2, 0.3)
    return Durations(cold, bootstrap, (2.5 if cold else 1) * _drawn(chance, 60, 0.5))


def hanging(chance: random.Random) -> Durations:
    """Draw one attempt in fifty that never ends."""
    drawn = log_normal(chance)
    return drawn._replace(execution=math.inf) if chance.random() < HANGING else drawn


def _drawn(chance: random.Random, median_s: float, sigma: float) -> float:
    return median_s * math.exp(chance.gauss(0, sigma))


CASES: Final = (
    Case("log-normal", log_normal),
    Case("log-normal, declared far too short", log_normal, declared=TOO_SHORT),
    Case("cold and warm", cold_and_warm),
    Case("drift x 3", log_normal, after_drift=lambda chance: log_normal(chance, 3)),
    Case("2 % hang", hanging),
    Case("2 % fail", log_normal, failures=0.02),
)

#: The total limit in seconds that follows from the samples of a window, or None to leave it as it
#: is. Instead of a rule: None, the budget engine.
Rule = Callable[[Sequence[AttemptSample]], float | None] | None


def _next(
    rule: Rule,
    samples: Sequence[AttemptSample],
    now: datetime,
    declared: Limit,
    current: LimitInForce,
) -> LimitInForce:
    """Return the next limit in force, by the rule or by the engine."""
    if rule is None:
        found = derive_budget(
            samples, now=now, declared=declared, current=current, settings=SETTINGS
        )
        return LimitInForce(found.applied, found.changed_at)
    asked = rule(samples) if len(_successes(samples)) >= FEWEST else None
    if asked is None:
        return current
    seconds = min(asked, SETTINGS.longest.total_seconds())
    return LimitInForce(Limit(seconds, seconds), now)


def _successes(samples: Sequence[AttemptSample]) -> list[float]:
    return [one.total_seconds for one in samples if one.outcome is Outcome.SUCCESS]


def _median_twice(samples: Sequence[AttemptSample]) -> float:
    return 2 * median(_successes(samples))


def _raw_p95(samples: Sequence[AttemptSample]) -> float:
    return quantiles(_successes(samples), n=20, method="inclusive")[-1]


def _kaplan_meier(samples: Sequence[AttemptSample]) -> float:
    """Return the percentile by Kaplan and Meier, or twice the longest duration beyond the data."""
    observed = observations(samples, Phase.TOTAL)
    found = survival.percentile(survival.survival_curve(observed), 0.95)
    return 2 * max(one.seconds for one in observed) if found is None else found


#: What the engine is compared with; the engine alone has tail probes.
RULES: Final[dict[str, Rule]] = {
    "budget engine": None,
    "median x 2": _median_twice,
    "raw p95": _raw_p95,
    "Kaplan-Meier alone": _kaplan_meier,
    "declared limit": lambda _: None,
}


class Window(NamedTuple):
    """The end of a window: the limit in force, the share that it clips in percent, and when not.

    Args:
        limit: the limit in force.
        clipped: the share of attempts that it clips, of those that do not hang, in percent.
        notice_s: how long a hang lasts until it is ended, on average.
        days_above: how many days of the window the limit clipped more than is allowed.
    """

    limit: Limit
    clipped: float
    notice_s: float
    days_above: int


def replay(case: Case, rule: Rule, size: int, seed: int) -> Iterator[Window]:
    """Yield the end of each window of a step with so many samples a window."""
    chance = random.Random(seed)  # noqa: S311 - a replay that can be repeated
    current = LimitInForce(case.declared, START)
    samples: list[AttemptSample] = []
    for window in range(WINDOWS):
        draw, shares = case.draw_in(window), []
        for day in range(window * DAYS, (window + 1) * DAYS):
            now = START + timedelta(days=day + 1)
            for number in range(size * day // DAYS, size * (day + 1) // DAYS):
                probe = rule is None and is_tail_probe(f"{seed}-{number}", "step")
                limit = _longest() if probe else current.limit
                seen = _attempt(draw(chance), case.failures, limit, chance, now)
                samples.append(replace(seen, tail_probe=probe))
            samples = [one for one in samples if one.ended_at > now - SETTINGS.window]
            current = _next(rule, samples, now, case.declared, current)
            shares.append(_clipped(draw, current.limit))
        days_above = sum(share > ALLOWED for share in shares)
        notice_s = _notice_s(current.limit, has_probes=rule is None)
        yield Window(current.limit, shares[-1], notice_s, days_above)


def _longest() -> Limit:
    return Limit(SETTINGS.longest.total_seconds(), SETTINGS.longest.total_seconds() - 1)


def _attempt(
    drawn: Durations, failures: float, limit: Limit, chance: random.Random, now: datetime
) -> AttemptSample:
    """Return an attempt of the day before now, as it is seen under the limit."""
    ended_at = now - timedelta(days=chance.random())
    cold, bootstrap, execution = drawn
    if bootstrap >= limit.total_seconds:
        return AttemptSample(ended_at, Outcome.CLIPPED, limit.total_seconds, None, cold=cold)
    most = min(limit.execution_seconds, limit.total_seconds - bootstrap)
    seconds = min(execution, most)
    outcome = Outcome.CLIPPED if execution > most else Outcome.SUCCESS
    if chance.random() < failures:
        outcome, seconds = Outcome.FAILED, chance.uniform(0, seconds)
    return AttemptSample(ended_at, outcome, bootstrap, seconds, cold=cold)


class Truth(NamedTuple):
    """Many draws of those that end, sorted: few of them are longer than a limit.

    Args:
        executions: how long each executes, in seconds.
        totals: how long each takes in all, and how long it executes.
    """

    executions: Sequence[float]
    totals: Sequence[tuple[float, float]]


@cache
def _truth(draw: Draw) -> Truth:
    """Return the same draws each time."""
    chance = random.Random(1)  # noqa: S311 - as above
    drawn = [draw(chance) for _ in range(TRUE_DRAWS)]
    ending = [one for one in drawn if one.execution < math.inf]
    return Truth(
        sorted(one.execution for one in ending),
        sorted((one.bootstrap + one.execution, one.execution) for one in ending),
    )


@lru_cache(maxsize=1024)
def _clipped(draw: Draw, limit: Limit) -> float:
    """Return how many of 100 attempts the limit clips."""
    executions, totals = _truth(draw)
    by_execution = len(executions) - bisect_right(executions, limit.execution_seconds)
    too_long = totals[bisect_right(totals, (limit.total_seconds, math.inf)) :]
    by_total = sum(execution <= limit.execution_seconds for _, execution in too_long)
    return 100 * (by_execution + by_total) / len(executions)


def _notice_s(limit: Limit, *, has_probes: bool) -> float:
    """Return after how many seconds a hanging execution is ended, on average."""
    probes = 1 / PROBE_EVERY if has_probes else 0.0
    return (1 - probes) * limit.execution_seconds + probes * _longest().execution_seconds


def measure(sizes: dict[int, int], cases: Sequence[Case] = CASES) -> list[Figure]:
    """Return the share that the engine clips after its worst window, for each case and size."""
    figures = []
    for case in cases:
        for size, seeds in sizes.items():
            windows = _windows(case, None, size, seeds)
            worst = max(mean(one.clipped for one in window) for window in windows)
            figures.append(
                Figure(
                    name=f"clipped after the worst window: {case.name}, {size} samples",
                    value=round(worst, 2),
                    unit="%",
                    floor=ALLOWED,
                    ratio=round(worst / ALLOWED, 3),
                    target="<= 1.0",
                    holds=worst <= ALLOWED,
                )
            )
    return figures


def _windows(case: Case, rule: Rule, size: int, seeds: int) -> list[tuple[Window, ...]]:
    """Return for each window its end in each replay."""
    return list(zip(*(tuple(replay(case, rule, size, seed)) for seed in range(seeds)), strict=True))


def compare(size: int, seeds: int, cases: Sequence[Case] = CASES) -> list[dict[str, object]]:
    """Return for each rule and case what it clips, and how late it notices a hang."""
    rows: list[dict[str, object]] = []
    for case in cases:
        for name, rule in RULES.items():
            windows = _windows(case, rule, size, seeds)
            every = [one for window in windows for one in window]
            rows.append(
                {
                    "case": case.name,
                    "rule": name,
                    "clipped after window 1": _clips(windows[0]),
                    f"after window {WINDOWS}": _clips(windows[-1]),
                    "after the worst window": max(map(_clips, windows)),
                    "windows above 5 %": round(
                        100 * mean(one.clipped > ALLOWED for one in every), 1
                    ),
                    "s to notice a hang": round(mean(one.notice_s for one in windows[-1])),
                    "days above 5 % after the drift": round(
                        mean(one.days_above for one in windows[DRIFT_AT]), 1
                    ),
                }
            )
    return rows


def _clips(window: Sequence[Window]) -> float:
    return round(mean(one.clipped for one in window), 1)


def main() -> None:
    """Replay and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="replays of the comparison")
    parser.add_argument("--size", type=int, default=100, help="samples a window of the comparison")
    given = parser.parse_args()
    report("limits", measure(SIZES))
    rows = compare(given.size, given.seeds)
    (OUT / "limits_compared.json").write_text(json.dumps(rows, indent=2) + "\n")
    print("\n| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|")
    for row in rows:
        print("| " + " | ".join(map(str, row.values())) + " |")


if __name__ == "__main__":
    main()
