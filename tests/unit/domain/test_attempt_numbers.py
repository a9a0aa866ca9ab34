"""The number of an attempt, which no other attempt of the step and trial has."""

from __future__ import annotations

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Attempts
from leasehold.domain.status import AttemptEnd
from leasehold.domain.timeline import timeline
from tests.unit.domain.runs import At, Runs


def retried(runs: Runs, run: Manifest) -> Change:
    return lifecycle.retry(run, runs.at(8), rules=runs.rules, actor="ada", reason="")


def test_a_step_that_runs_again_after_a_gate_has_its_own_attempt(runs: Runs, at: At) -> None:
    """`ctx.attempt` names files: two attempts of one number would overwrite each other's."""
    run = runs.blocked()
    assert run.position.attempt == 1

    change = retried(runs, run)

    after = change.manifest
    assert (
        after.position.attempt,
        after.position.attempts.repeated,
        after.position.interruptions,
    ) == (2, 1, 0)
    assert after.steps["draft"].attempts.repeated == 1
    assert [(str(row.type), row.attempt) for row in change.events] == [("run_retried", 1)]
    again = runs.with_output(runs.leased(after, at=20, lease_id="lease-2"), at=21)
    row = [(str(event.type), event.attempt) for event in timeline(again, [])]
    assert ("step_completed", 2) in row


def test_to_run_again_costs_no_retry(runs: Runs, at: At) -> None:
    run = retried(runs, runs.blocked()).manifest

    failed = runs.failed(runs.leased(run, at=20, lease_id="lease-2"), at=25)

    assert (failed.position.attempts.failed, failed.position.attempt) == (1, 3)
    assert failed.position.dispatch.not_before == at(35)


@pytest.mark.parametrize("state", ["failed", "unknown"])
def test_what_ended_before_or_never_began_is_not_counted_again(runs: Runs, state: str) -> None:
    run = getattr(runs, state)()

    after = retried(runs, run).manifest

    assert after.position.attempts == run.position.attempts


@pytest.mark.parametrize("end", AttemptEnd)
def test_each_end_of_an_attempt_counts_towards_the_number_of_the_next(end: AttemptEnd) -> None:
    assert Attempts().plus(end).ended == 1
