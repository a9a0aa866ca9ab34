"""The table of trace events."""

from docs.trace_events import TRACE_EVENTS
from leasehold.domain.trace import TraceType


def test_each_trace_event_has_an_entry() -> None:
    """An event without one would be missing in the docs."""
    assert TRACE_EVENTS.keys() == tuple(type_.value for type_ in TraceType)


def test_planned_events_are_those_that_the_timeline_tells() -> None:
    """They cost no write; all others are stored."""
    assert [entry.key for entry in TRACE_EVENTS if entry.planned] == [
        "run_started",
        "step_started",
        "step_completed",
        "step_handed_off",
        "step_skipped",
        "run_completed",
    ]


def test_each_entry_says_what_the_event_means_in_a_sentence() -> None:
    assert [entry.key for entry in TRACE_EVENTS if not entry.meaning.endswith(".")] == []
