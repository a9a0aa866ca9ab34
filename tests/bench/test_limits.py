"""Limits that learn clip no more than they may, whatever the durations are."""

from __future__ import annotations

from statistics import mean

import pytest

from bench import limits
from bench.limits import ALLOWED, CASES


@pytest.fixture(autouse=True)
def rough_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer draws of the true distribution: what is clipped is known to half a percent."""
    monkeypatch.setattr(limits, "TRUE_DRAWS", 4000)


def test_a_limit_that_learns_clips_no_more_than_allowed_after_any_window() -> None:
    rows = limits.measure({20: 3})

    assert [row.name.partition(": ")[2] for row in rows] == [f"{c.name}, 20 samples" for c in CASES]
    assert [row for row in rows if not row.holds] == []


def test_a_rule_that_forgets_what_it_clipped_tightens_from_window_to_window() -> None:
    """With no drift at all: what a limit clips is missing from the next percentile."""
    rows = {row["rule"]: row for row in limits.compare(100, 1, CASES[:1])}

    assert rows["budget engine"]["after the worst window"] <= ALLOWED
    assert rows["raw p95"]["after window 8"] > 50
    assert rows["median x 2"]["after window 8"] > 20
    assert rows["declared limit"]["s to notice a hang"] == 600


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("size", [20, 100, 200])
def test_few_of_many_replays_clip_more_than_allowed(case: limits.Case, size: int) -> None:
    """Not only the mean of 40 replays holds: nine of ten windows do."""
    replays = [tuple(limits.replay(case, None, size, seed)) for seed in range(100, 140)]

    clipped = [[ends[number].clipped for ends in replays] for number in range(limits.WINDOWS)]
    assert max(mean(shares) for shares in clipped) <= ALLOWED
    above = [share for shares in clipped for share in shares if share > ALLOWED]
    assert len(above) <= 40 * limits.WINDOWS / 10
