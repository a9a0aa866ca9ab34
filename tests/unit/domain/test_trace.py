"""The names of stored events, whose they are, and types that a later version wrote."""

from __future__ import annotations

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import to_document
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceEvent, TraceType, is_of_run, loss_ref, trace_ref
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position


def event(at: At, second: float) -> TraceEvent:
    return TraceEvent(type=TraceType.STEP_ERROR, at=at(second))


def test_the_names_of_stored_events_sort_as_they_came(runs: Runs) -> None:
    names = [trace_ref(runs.pending(), number).id for number in (0, 9, 10, 123_456)]

    assert names == sorted(names)
    assert [name[:6] for name in names] == ["000000", "000009", "000010", "123456"]


def test_events_sort_behind_those_of_a_version_before_that_named_them_by_number_alone(
    runs: Runs,
) -> None:
    names = ["000000", "000001", trace_ref(runs.pending(), 2).id]

    assert names == sorted(names)


def test_two_runs_of_one_id_never_share_a_name(runs: Runs, at: At, rules: Rules) -> None:
    """The document of the first was deleted, and its trace was left."""
    first = runs.pending()
    new = runs.new(nonce="nonce-2")
    second = lifecycle.start(None, at(0), rules=rules, new=new).manifest

    for name in (lambda run: trace_ref(run, 0).id, lambda run: loss_ref(run, "lease-1").id):
        assert name(first) != name(second)
        assert name(first) == name(
            at_position(first, dispatch=replace(first.position.dispatch, generation=7))
        )


def test_a_name_tells_nothing_of_the_nonce(runs: Runs) -> None:
    """A reader of it could forge the name of a task."""
    run = runs.pending()

    assert run.position.dispatch.nonce[:4] not in trace_ref(run, 0).id
    assert "/" not in trace_ref(run, 0).id


@pytest.mark.parametrize(
    ("name", "second", "expected"),
    [
        ("000003", 5, True),
        ("000003", -5, False),
        ("lost-lease-1", 5, True),
        ("lost-lease-1", -5, False),
        ("000003-0123abcd", 5, False),
        ("lost-lease-1-0123abcd", 5, False),
        ("diverged-draft-1-2-0123abcd", 5, False),
    ],
    ids=[
        "unmarked",
        "unmarked and older",
        "loss",
        "older loss",
        "another's",
        "another's loss",
        "another's calls",
    ],
)
def test_what_an_earlier_run_of_the_id_left_is_known(
    runs: Runs, at: At, name: str, second: float, expected: bool
) -> None:
    """Names without a mark are of a version before; then only the time tells."""
    assert is_of_run(runs.pending(), name, event(at, second)) is expected


def test_a_marked_event_is_of_its_run_whatever_the_clock_was(runs: Runs, at: At) -> None:
    run = runs.pending()

    assert is_of_run(run, trace_ref(run, 0).id, event(at, -999))
    assert is_of_run(run, loss_ref(run, "lease-1").id, event(at, -999))


def test_a_type_of_a_later_version_is_kept(at: At) -> None:
    stored = {"type": "step_pondered", "at": at(3), "mood": "deep"}

    found = TraceEvent.model_validate(stored)

    assert (str(found.type), to_document(found)) == ("step_pondered", stored)


def test_a_type_that_is_known_is_one_of_the_list(at: At) -> None:
    stored = {"type": "step_error", "at": at(3)}

    assert TraceEvent.model_validate(stored).type is TraceType.STEP_ERROR
