"""The timeline: what went as planned, among what was stored."""

from __future__ import annotations

from leasehold.domain.timeline import timeline
from leasehold.domain.trace import TraceEvent, TraceType, trace_ref
from tests.unit.domain.runs import At, Runs


def test_what_went_as_planned_is_told_from_the_manifest(runs: Runs, at: At) -> None:
    """A run without trouble stores no event at all."""
    events = timeline(runs.completed(), [])

    assert [(event.at, event.type.value, event.step) for event in events] == [
        (at(0), "run_started", None),
        (at(0), "step_started", "draft"),
        (at(5), "step_completed", "draft"),
        (at(5), "step_handed_off", "draft"),
        (at(6), "step_started", "send"),
        (at(9), "step_completed", "send"),
        (at(9), "run_completed", None),
    ]


def test_stored_events_stand_where_they_happened(runs: Runs, at: At) -> None:
    stored = [
        TraceEvent(type=TraceType.RUN_PAUSED, at=at(7)),
        TraceEvent(type=TraceType.STEP_ERROR, at=at(3), step="draft"),
    ]

    types = [event.type.value for event in timeline(runs.completed(), stored)]

    assert types == [
        "run_started",
        "step_started",
        "step_error",
        "step_completed",
        "step_handed_off",
        "step_started",
        "run_paused",
        "step_completed",
        "run_completed",
    ]


def test_an_output_names_the_attempt_that_brought_it(runs: Runs, at: At) -> None:
    run = runs.with_output(runs.leased(runs.failed(), at=15, lease_id="lease-2"), at=20)

    events = timeline(run, [])

    assert [(event.type.value, event.attempt) for event in events[1:]] == [
        ("step_started", 1),
        ("step_completed", 2),
        ("step_handed_off", 2),
    ]


def test_the_names_of_stored_events_sort_as_they_came() -> None:
    names = [trace_ref("r-1", number).id for number in (0, 9, 10, 123_456)]

    assert names == ["000000", "000009", "000010", "123456"]
