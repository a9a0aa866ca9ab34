"""Samples that cannot be true are dropped and counted; tail probes are chosen for good."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.budgets.samples import AttemptSample, Outcome, SampleCounts, believable, count
from leasehold.budgets.tail_probe import is_tail_probe

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def sample(**fields: Any) -> AttemptSample:
    usual: dict[str, Any] = {
        "ended_at": NOW - timedelta(hours=1),
        "outcome": Outcome.SUCCESS,
        "bootstrap_seconds": 2.0,
        "execution_seconds": 60.0,
    }
    return AttemptSample(**(usual | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"bootstrap_seconds": -0.1},
        {"execution_seconds": -5.0},
        {"execution_seconds": math.nan},
        {"execution_seconds": math.inf},
        {"execution_seconds": 365 * 86400.0},
        {"execution_seconds": "60"},
        {"bootstrap_seconds": None},
        {"execution_seconds": None},
        {"execution_seconds": True},
        {"ended_at": NOW + timedelta(seconds=1)},
        {"ended_at": datetime(2026, 5, 31)},  # noqa: DTZ001 - a time without its zone
        {"ended_at": "yesterday"},
        {"ended_at": None},
        {"outcome": "success or so"},
        {"outcome": None},
        {"usd": math.nan},
        {"usd": math.inf},
        {"usd": -0.5},
        {"usd": "5"},
    ],
    ids=str,
)
def test_a_sample_that_cannot_be_true_is_dropped(fields: dict[str, Any]) -> None:
    """A clock jumps, a metrics source lies: no limit follows from it, and nothing raises."""
    good = sample()

    assert believable([sample(**fields), good], NOW) == [good]


def test_a_sample_that_is_not_one_is_dropped() -> None:
    assert believable([None, 5, {"execution_seconds": 5}, sample()], NOW) == [sample()]


def test_samples_are_in_order_of_their_ends() -> None:
    early, late = sample(ended_at=NOW - timedelta(days=2)), sample(ended_at=NOW)

    assert believable([late, early], NOW) == [early, late]


def test_attempts_are_counted_by_kind() -> None:
    counts = count(
        [
            sample(cold=True),
            sample(retried=True),
            sample(outcome=Outcome.CLIPPED, tail_probe=True),
            sample(outcome=Outcome.INTERRUPTED),
            sample(outcome=Outcome.FAILED, cold=True),
        ],
        dropped=3,
    )

    assert counts == SampleCounts(
        successes=2,
        clipped=1,
        interrupted=1,
        failures=1,
        cold=1,
        warm=3,
        retried=1,
        tail_probes=1,
        dropped=3,
    )
    assert counts.learnt_from == 4


def test_one_attempt_in_fifty_is_a_tail_probe() -> None:
    chosen = [number for number in range(10_000) if is_tail_probe(f"run-{number}", "draft")]

    assert 160 <= len(chosen) <= 240


def test_an_attempt_is_a_tail_probe_each_time_it_is_asked() -> None:
    """A redelivered task gets the same limit. Another deploy chooses the same attempts."""
    chosen = [number for number in range(200) if is_tail_probe(f"run-{number}", "draft")]

    assert chosen == [97]
    assert not is_tail_probe("run-97", "draft", attempt=2)
