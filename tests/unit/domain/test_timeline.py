"""The timeline: what went as planned, among what was stored."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.stored import replace
from leasehold.domain.timeline import timeline
from leasehold.domain.trace import TraceEvent, TraceType
from tests.unit.domain.runs import At, Runs
from tests.unit.domain.trial_runs import RULE, START, TrialRun, review
from tests.worlds.builders import with_step


def test_what_went_as_planned_is_told_from_the_manifest(runs: Runs, at: At) -> None:
    """A run without trouble stores no event at all."""
    events = timeline(runs.completed(), [])

    assert [(event.at, str(event.type), event.step) for event in events] == [
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
        TraceEvent(type=TraceType.STEP_ERROR, at=at(3), step="draft"),
        TraceEvent(type=TraceType.RUN_PAUSED, at=at(7), step="send"),
    ]

    types = [str(event.type) for event in timeline(runs.completed(), stored)]

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

    assert [(str(event.type), event.attempt) for event in events[1:]] == [
        ("step_started", 1),
        ("step_completed", 2),
        ("step_handed_off", 2),
    ]


def test_a_call_that_was_confirmed_or_paid_again_stands_before_the_output(
    runs: Runs, at: At
) -> None:
    facts = {"type": TraceType.RUN_APPROVED, "at": at(4), "step": "draft", "attempt": 1}
    confirmed = TraceEvent.model_validate(facts | {"call": "charge"})
    stored = [
        stored_event(TraceType.CALL_UNCONFIRMED, at(3)),
        confirmed,
        stored_event(TraceType.RUN_PAUSED, at(7), step="send"),
        stored_event(TraceType.CALL_DIVERGED, at(2)),  # it has no number: its name sorts last
    ]

    assert names(timeline(runs.completed(), stored))[1:6] == [
        "step_started",
        "call_diverged",
        "call_unconfirmed",
        "run_approved",
        "step_completed",
    ]


# -- a clock that is set back ----------------------------------------------------------------------


def stored_event(
    type_: TraceType, when: datetime, attempt: int = 1, step: str = "draft"
) -> TraceEvent:
    return TraceEvent(type=type_, at=when, step=step, attempt=attempt)


def names(events: list[TraceEvent]) -> list[str]:
    return [str(event.type) for event in events]


def test_stored_events_keep_their_order_where_the_clock_was_set_back(runs: Runs, at: At) -> None:
    stored = [
        stored_event(TraceType.STEP_ERROR, at(300)),
        stored_event(TraceType.RUN_PAUSED, at(9), 2),
        stored_event(TraceType.RUN_RESUMED, at(4), 2),
    ]

    found = names(timeline(runs.failed(), stored))

    assert found == ["run_started", "step_started", "step_error", "run_paused", "run_resumed"]


def test_an_output_comes_after_the_attempts_before_it(runs: Runs, at: At) -> None:
    """The first attempt failed at 12:05, by a clock that was set back by an hour then."""
    run = runs.with_output(runs.leased(runs.failed(), at=15, lease_id="lease-2"), at=20)
    stored = [
        stored_event(TraceType.STEP_ERROR, at(3600)),
        stored_event(TraceType.CHECKPOINT_RESUMED, at(15), 2),
    ]

    found = names(timeline(run, stored))

    assert found == [
        "run_started",
        "step_started",
        "step_error",
        "checkpoint_resumed",
        "step_completed",
        "step_handed_off",
    ]


def test_what_ended_an_attempt_comes_after_its_start(runs: Runs, at: At) -> None:
    run = runs.failed(runs.leased(at=3600))

    found = names(timeline(run, [stored_event(TraceType.STEP_ERROR, at(5))]))

    assert found == ["run_started", "step_started", "step_error"]


def test_a_gate_and_its_approval_come_between_output_and_hand_off(runs: Runs, at: At) -> None:
    run = runs.blocked()
    run = lifecycle.approve(run, at(-50), rules=runs.rules, actor="ada", reason="fine").manifest
    stored = [
        stored_event(TraceType.GATE_BLOCKED, at(5)),
        stored_event(TraceType.RUN_APPROVED, at(-50)),
    ]

    found = names(timeline(run, stored))

    assert found == [
        "run_started",
        "step_started",
        "step_completed",
        "gate_blocked",
        "run_approved",
        "step_handed_off",
    ]


def test_a_run_that_completes_before_it_began_is_told_in_order(runs: Runs, at: At) -> None:
    """The clock was set back by a day while it ran."""
    run = runs.completed()
    earlier = at(-86_400)
    run = replace(run, completed_at=earlier, steps=with_step(run, "send", completed_at=earlier))

    assert names(timeline(run, [])) == names(timeline(runs.completed(), []))


@pytest.mark.parametrize("event", [TraceType.ARCHIVE_FAILED, TraceType.RUN_RECREATED])
@pytest.mark.parametrize("later_s", [9, 10, -86_400])
def test_an_event_after_the_end_of_a_run_stands_behind_it(
    runs: Runs, at: At, event: TraceType, later_s: int
) -> None:
    """The clock may have been set back; the archive begins when the end is committed."""
    stored = TraceEvent(type=event, at=at(later_s), step="send", trial=1, attempt=1)

    found = names(timeline(runs.completed(), [stored]))

    assert found == [*names(timeline(runs.completed(), [])), str(event)]


def test_a_lost_lease_stands_at_the_time_it_was_noticed(runs: Runs, at: At) -> None:
    """It has no number: its writer had lost the lease."""
    lost = stored_event(TraceType.LEASE_LOST, at(7))

    found = names(timeline(runs.completed(), [lost]))

    assert found.index("lease_lost") == 5


# -- trials ----------------------------------------------------------------------------------------


def told(run: TrialRun) -> list[str]:
    """Each event in short: its type, and where it happened."""
    return [f"{event.type} {event.step or '-'} {event.trial or 0}" for event in run.timeline()]


def test_each_trial_stands_in_its_place_whichever_counts() -> None:
    run = TrialRun.begun(plan=("write", "review"), rule=replace(RULE, max_trials=2))
    run.output().output(review(0.5)).output().output(review(0.4))

    assert told(run) == [
        "run_started - 0",
        "step_started write 1",
        "step_completed write 1",
        "step_handed_off write 1",
        "step_started review 1",
        "step_completed review 1",
        "author_slot_opened write 2",
        "step_started write 2",
        "step_completed write 2",
        "step_handed_off write 2",
        "step_started review 2",
        "step_completed review 2",
        "trial_chosen review 1",
        "run_completed - 0",
    ]


def test_a_huge_number_stands_where_it_belongs() -> None:
    trials = TrialRun.begun(plan=("write", "review"), rule=replace(RULE, max_trials=2))
    trials.output().output(review(0.5))
    (filed,) = trials.run.steps["review"].trials or ()
    edited = with_step(trials.run, "review", trials=(replace(filed, trial=2**62),))
    trials.run = replace(trials.run, steps=edited)

    assert told(trials)[-2:] == [f"step_started review {2**62}", f"step_completed review {2**62}"]


def test_trials_keep_their_order_where_the_clock_was_set_back() -> None:
    run = TrialRun.begun().output().fails().output().output().lease()
    run.now = START - timedelta(days=1)
    run.output(review(0.5)).fails().output().fails().output().lease()
    run.now = START - timedelta(days=2)
    run.refused(review(0.2)).operate(lifecycle.approve).trial(0.1).output()

    dull = ("step_handed_off", "step_completed", "run_started")
    assert [line for line in told(run) if not line.startswith(dull)] == [
        "step_started collect 1",
        "step_started write 1",
        "step_error write 1",
        "step_started polish 1",
        "step_started review 1",
        "author_slot_opened write 2",
        "step_started write 2",
        "step_error write 2",
        "step_started polish 2",
        "step_error polish 2",
        "step_started review 2",
        "gate_blocked review 2",
        "run_approved review 2",
        "author_slot_opened write 3",
        "step_started write 3",
        "step_started polish 3",
        "step_started review 3",
        "trial_chosen review 1",
        "step_started publish 1",
        "run_completed - 0",
    ]


def test_an_output_of_a_trial_names_its_attempt_and_its_status() -> None:
    run = TrialRun.begun().output().fails().trial(0.5).fails().fails().trial(0.7, author="PARTIAL")

    outputs = [
        (event.trial, event.attempt, (event.model_extra or {}).get("outputStatus"))
        for event in run.timeline()
        if (event.type, event.step) == ("step_completed", "write")
    ]
    assert outputs == [(1, 2, "SUCCESS"), (2, 3, "PARTIAL")]


def test_announcements_stand_where_they_happened(runs: Runs, at: At) -> None:
    """They have no number: their names come behind all that has one."""
    stored = [
        TraceEvent(type=TraceType.RUN_PAUSED, at=at(7), step="send"),
        TraceEvent(type=TraceType.ANNOUNCEMENT_GIVEN_UP, at=at(8), step="send"),
        TraceEvent(type=TraceType.ANNOUNCEMENT_SENT, at=at(20), step="send"),
    ]

    types = [str(event.type) for event in timeline(runs.completed(), stored)]

    assert types[-5:] == [
        "run_paused",
        "announcement_given_up",
        "step_completed",
        "run_completed",
        "announcement_sent",
    ]
