"""Steps of the machine's clock: what counts as one, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from leasehold.adapters.clock import MIN_STEP_S, NEW_STEP_S, ClockSteps

START = datetime(2026, 1, 1, tzinfo=UTC)


class Watch:
    """A time of day and seconds that pass, each as a test says."""

    skip = None

    def __init__(self) -> None:
        self.at, self.seconds = START, 0.0
        self.stalls: Iterator[float] = iter(())

    def now(self) -> datetime:
        at = self.at
        self.pass_(next(self.stalls, 0.0))  # the process is stopped right after
        return at

    def monotonic(self) -> float:
        return self.seconds

    def new_id(self) -> str:
        raise NotImplementedError

    def pass_(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.seconds += seconds


def test_time_that_passes_is_no_step() -> None:
    watch = Watch()
    steps = ClockSteps(watch)

    for seconds in (0.1, 3600, 1e6):
        watch.pass_(seconds)
        assert steps.newest() is None


@pytest.mark.parametrize("by", [3600.0, -3600.0, MIN_STEP_S + 1, -MIN_STEP_S - 1])
def test_a_clock_that_was_set_is_a_step_for_a_while(by: float) -> None:
    watch = Watch()
    steps = ClockSteps(watch)
    watch.pass_(1)
    watch.at += timedelta(seconds=by)

    step = steps.newest()
    assert step is not None
    assert step.by.total_seconds() == pytest.approx(by)
    assert watch.at - timedelta(seconds=1) <= step.since <= watch.at
    watch.pass_(NEW_STEP_S - 1)
    assert steps.newest() is step
    watch.pass_(2)
    assert steps.newest() is None


def test_a_slow_drift_is_no_step() -> None:
    watch = Watch()
    steps = ClockSteps(watch)

    for _ in range(100):
        watch.pass_(1000)
        watch.at += timedelta(seconds=MIN_STEP_S / 2)
        assert steps.newest() is None


def test_a_process_that_is_stopped_between_two_readings_has_seen_no_step() -> None:
    watch = Watch()
    steps = ClockSteps(watch)
    watch.stalls = iter((60.0, 60.0))

    assert steps.newest() is None
    watch.pass_(1)
    assert steps.newest() is None
