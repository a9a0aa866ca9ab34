"""Giving a run up: once, for good."""

from __future__ import annotations

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Draft
from leasehold.domain.dispatch import Rules
from leasehold.domain.give_up_rules import Verdict
from leasehold.domain.status import DeadLetterReason, Outcome
from tests.unit.domain.runs import ARCHIVE, At, Runs

NEVER = Verdict(DeadLetterReason.NEVER_STARTED, "its tasks ran out")


@pytest.mark.parametrize("state", ["pending", "leased", "failed", "blocked", "handed_off"])
def test_a_live_run_is_given_up_and_owes_its_archive_alone(
    runs: Runs, rules: Rules, at: At, state: str
) -> None:
    run = runs.paused(getattr(runs, state)())

    change = lifecycle.dead_letter(Draft(run, at(20), rules), NEVER)

    run = change.manifest
    assert (change.outcome, run.status, run.dead_lettered) == ("dead_lettered", "ERROR", True)
    assert (run.dead_lettered_at, run.dead_letter_reason) == (at(20), "NEVER_STARTED")
    assert run.dead_letter_detail == "its tasks ran out"
    assert (run.position.lease, run.paused, run.block, run.alarm_at) == (None, False, None, at(80))
    assert run.steps[run.current_step].status == "ERROR"
    assert change.owed == (ARCHIVE,)
    assert [event.type for event in change.events] == ["step_dead_lettered"]


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("dead_lettered", Outcome.DEAD_LETTERED),
        ("cancelled", Outcome.CANCELLED),
        ("completed", Outcome.ALREADY_COMPLETED),
    ],
)
def test_a_run_that_is_over_stays_as_it_is(
    runs: Runs, rules: Rules, at: At, state: str, outcome: Outcome
) -> None:
    """A count of dead letters must not have a run that was completed meanwhile."""
    run = runs.cancelled(runs.pending()) if state == "cancelled" else getattr(runs, state)()

    change = lifecycle.dead_letter(Draft(run, at(20), rules), NEVER)

    assert (change.outcome, change.changed, change.manifest) == (outcome, False, run)
