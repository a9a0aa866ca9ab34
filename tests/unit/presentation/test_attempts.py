"""The attempts of a run as bars on a line of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from leasehold.domain.spend import Spend
from leasehold.domain.trace import TraceEvent, TraceType
from leasehold.presentation.attempts import LINE_UNITS, DrawnCall, attempt_bars
from tests.unit.domain.runs import At, Runs

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def _event(type_: TraceType, at: datetime, **facts: object) -> TraceEvent:
    return TraceEvent.model_validate({"type": type_, "at": at, **facts})


def _ended(type_: TraceType, attempt: int, after_s: float, **facts: object) -> TraceEvent:
    times = {"bootstrapSeconds": 1.0, "executionSeconds": 9.0, "coldStart": attempt == 1}
    what = {"step": "one", "trial": 1, "attempt": attempt, **times, **facts}
    return _event(type_, NOW + timedelta(seconds=after_s), **what)


def test_a_run_without_an_attempt_has_no_bar(runs: Runs) -> None:
    assert attempt_bars(runs.pending(), [], NOW) == []


def test_the_attempt_that_runs_says_who_has_it(runs: Runs, at: At) -> None:
    (bar,) = attempt_bars(runs.leased(), [], at(5))

    assert (bar.end, bar.holder, bar.x) == ("running", "host-a", 0)
    assert bar.bootstrap_width + bar.execution_width == LINE_UNITS


def test_a_pause_takes_little_of_the_line(runs: Runs) -> None:
    """An hour between two attempts of ten seconds would leave nothing of them to see."""
    events = [
        _ended(TraceType.STEP_ERROR, 1, 10, errorCode="busy"),
        _event(TraceType.CHECKPOINT_RESUMED, NOW, iterationCount=3, phase="pages"),
        _ended(TraceType.STEP_COMPLETED, 2, 3610),
    ]

    first, second = attempt_bars(runs.pending(), events, NOW)

    assert (first.end, first.is_cold, first.x) == ("failed", True, 0)
    assert (second.end, second.resumed) == ("completed", "resumed from checkpoint 3 of pages")
    gap = second.x - (first.bootstrap_width + first.execution_width)
    assert 0 < gap < LINE_UNITS * 0.03
    assert (first.bootstrap_width, first.execution_width) == (49.0, 441.2)
    assert second.words == (
        "attempt 2 of step one completed after 10 s, warm start, 1.0 s bootstrap, 9.0 s work, "
        "resumed from checkpoint 3 of pages"
    )


def test_recorded_calls_are_ticks_and_spare_the_attempts_that_come_later(runs: Runs) -> None:
    events = [
        _ended(TraceType.STEP_TERMINATED, 1, 10, errorCode="killed"),
        _ended(TraceType.STEP_COMPLETED, 2, 20),
    ]
    calls = [
        DrawnCall(
            step=step,
            trial=1,
            key=f"model/{second}",
            at=None if second is None else NOW + timedelta(seconds=second),
            spend=Spend(tokens=900, usd=0.5),
        )
        for step, second in (("one", 2), ("one", 10), ("one", 15), ("other", 3), ("one", None))
    ]

    first, second = attempt_bars(runs.pending(), events, NOW, calls)

    assert [tick.x for tick in first.calls] == [100.0, 500.0]
    assert first.calls[0].words == "call model/2: 0.50 USD, 900 tokens"
    assert [tick.words.split(":")[0] for tick in second.calls] == ["call model/10", "call model/15"]
    assert (first.resumed, second.resumed) == ("", "1 recorded call")


def test_what_a_server_says_of_times_is_drawn_only_where_it_is_a_time(runs: Runs) -> None:
    """A page is made of answers, and a server may be of another version, or lie."""
    lies = [("a while", None), (-3, 5), (float("nan"), 1), (1e300, 1), (True, "x")]
    events = [
        _ended(TraceType.STEP_ERROR, number, 10, bootstrapSeconds=boot, executionSeconds=work)
        for number, (boot, work) in enumerate(lies, start=1)
    ]

    bars = attempt_bars(runs.pending(), events, NOW)

    assert len(bars) == len(lies)
    assert all(0 <= bar.x <= LINE_UNITS and bar.bootstrap_width >= 0 for bar in bars)


def test_the_latest_of_many_attempts_have_the_line_for_themselves(runs: Runs) -> None:
    events = [_ended(TraceType.STEP_ERROR, number, number * 60) for number in range(1, 151)]

    bars = attempt_bars(runs.pending(), events, NOW)

    assert [bars[0].attempt, bars[-1].attempt, len(bars)] == [51, 150, 100]
    assert bars[0].x == 0
