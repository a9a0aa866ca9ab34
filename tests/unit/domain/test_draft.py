"""A change in the making: what a commit adds to what a transition decided."""

from __future__ import annotations

from leasehold.domain.change import Draft
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence
from leasehold.domain.status import AttemptEnd, Outcome
from leasehold.domain.stored import replace
from leasehold.domain.trace import TraceType
from tests.unit.domain.runs import At, Runs


def test_a_commit_keeps_the_time_the_alarm_and_the_number_of_events(
    runs: Runs, rules: Rules, at: At
) -> None:
    run = replace(runs.pending(), traced=3)
    draft = Draft(run, at(7), rules)

    draft.trace(TraceType.RUN_PAUSED, actor="ada")
    draft.run = replace(draft.run, paused=True)
    change = draft.commit(Outcome.PAUSED)

    after = change.manifest
    assert (change.outcome, change.changed, len(change.events)) == (Outcome.PAUSED, True, 1)
    assert (after.paused, after.updated_at, after.alarm_at, after.traced) == (True, at(7), None, 4)


def test_the_run_that_is_stored_is_never_touched(runs: Runs, rules: Rules, at: At) -> None:
    """A store calls a transition again for each time that its transaction is retried."""
    run = runs.leased()
    stored = run.model_copy(deep=True)
    draft = Draft(run, at(7), rules)

    draft.run = replace(draft.run, paused=True)
    draft.step = replace(draft.step, output="1")
    draft.count(AttemptEnd.FAILED)
    draft.commit(Outcome.PAUSED)

    assert run == stored
    assert draft.before is run


def test_an_event_is_of_the_attempt_before_or_of_the_next_one(
    runs: Runs, rules: Rules, at: At
) -> None:
    draft = Draft(runs.leased(), at(7), rules)

    draft.count(AttemptEnd.FAILED)
    draft.trace(TraceType.STEP_ERROR)
    draft.trace_next(TraceType.STEP_UNKNOWN)

    assert [(event.type, event.attempt) for event in draft.events] == [
        ("step_error", 1),
        ("step_unknown", 2),
    ]


def test_only_the_settling_worker_gets_a_note_of_the_answer(
    runs: Runs, rules: Rules, at: At
) -> None:
    run = runs.leased()

    settled = Draft(run, at(7), rules, Fence("lease-1", 1)).commit(Outcome.RELEASED).manifest
    renewed = Draft(run, at(7), rules).commit(Outcome.RENEWED).manifest

    note = settled.position.last_settlement
    assert note is not None
    assert (note.lease_id, note.fencing_token, note.outcome) == ("lease-1", 1, "released")
    assert renewed.position.last_settlement is None
