"""A worker elsewhere asks for a step: it gets the lease, or hears why there is none to have."""

from __future__ import annotations

from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import replace
from leasehold.errors import LeaseHeldError, NothingToClaimError
from tests.unit.domain.runs import At, Bound, Runs
from tests.worlds.builders import at_position


@pytest.fixture
def claim(elsewhere: Runs) -> Bound:
    """A claim that would become lease-9 of a desktop."""
    return partial(lifecycle.claim, rules=elsewhere.rules, lease_id="lease-9", holder="desktop")


def interrupted_twice(run: Manifest) -> Manifest:
    return at_position(
        run, attempts=replace(run.position.attempts, interrupted=1, expired=1), interruptions=2
    )


def test_who_claims_a_waiting_step_gets_its_lease(elsewhere: Runs, claim: Bound, at: At) -> None:
    change = claim(elsewhere.pending(), at(3))

    run = change.manifest
    assert change.outcome is Outcome.ACQUIRED
    assert (run.status, run.fencing_token, run.position.dispatch.generation) == (
        "IN_PROGRESS",
        1,
        1,
    )
    assert (run.position.lease.lease_id, run.position.lease.holder) == ("lease-9", "desktop")
    assert (run.position.lease.expires_at, run.position.lease.max_expires_at) == (
        at(33),
        at(3 + 180 + 300),
    )
    assert (run.claimable, run.alarm_at) == (None, at(33))
    assert run.steps["draft"].status is RunStatus.IN_PROGRESS
    assert (change.owed, change.events) == ((), ())


def test_a_step_of_a_run_that_is_known_may_be_claimed_although_a_task_announces_it(
    runs: Runs, claim: Bound, at: At
) -> None:
    """It is not offered, but a worker that names the run may have it; the task comes too late."""
    change = claim(runs.pending(), at(3), rules=runs.rules)

    assert (change.outcome, change.owed) == (Outcome.ACQUIRED, ())


def test_a_step_that_is_held_is_refused_with_who_and_until_when(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    with pytest.raises(LeaseHeldError) as refused:
        claim(elsewhere.claimed(), at(29.999))

    assert refused.value.retryable
    assert refused.value.details == {
        "run_id": "r-1",
        "holder": "laptop",
        "expires_at": "2026-01-01T12:00:30+00:00",
    }


@pytest.mark.parametrize(
    ("state", "state_text"),
    [
        ("completed", "COMPLETED"),
        ("dead_lettered", "dead-lettered and ERROR"),
        ("blocked", "BLOCKED"),
        ("unknown", "BLOCKED"),
    ],
)
def test_a_run_that_waits_for_no_worker_says_what_it_is(
    runs: Runs, claim: Bound, at: At, state: str, state_text: str
) -> None:
    with pytest.raises(NothingToClaimError) as refused:
        claim(getattr(runs, state)(), at(600))

    assert refused.value.retryable
    assert refused.value.details == {
        "problem": f"run r-1 is {state_text}",
        "run_id": "r-1",
        "state": state_text,
    }


@pytest.mark.parametrize(
    ("overlay", "state_text"),
    [("paused", "paused and PENDING"), ("cancelled", "cancelled and PENDING")],
)
def test_a_run_that_a_person_holds_or_ended_cannot_be_claimed(
    elsewhere: Runs, claim: Bound, at: At, overlay: str, state_text: str
) -> None:
    run = getattr(elsewhere, overlay)(elsewhere.pending())

    with pytest.raises(NothingToClaimError) as refused:
        claim(run, at(9))

    assert refused.value.message == f"Nothing to claim: run r-1 is {state_text}."


def test_the_expired_lease_of_a_paused_run_is_not_taken_over(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    """The sweep ends it; no worker starts until a person resumes the run."""
    run = elsewhere.paused(elsewhere.claimed())

    with pytest.raises(NothingToClaimError, match="run r-1 is paused and IN_PROGRESS"):
        claim(run, at(30))


def test_a_step_that_this_deploy_does_not_know_cannot_be_claimed(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    with pytest.raises(NothingToClaimError, match="this deploy knows no step 'draft'"):
        claim(elsewhere.pending(), at(1), rules=elsewhere.knowing_nothing())


def test_the_expired_lease_of_a_step_that_is_not_known_is_not_taken_over(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    with pytest.raises(NothingToClaimError, match="this deploy knows no step 'draft'"):
        claim(elsewhere.claimed(), at(30), rules=elsewhere.knowing_nothing())


def test_a_failed_step_is_not_claimed_before_its_backoff_is_over(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    with pytest.raises(NothingToClaimError) as refused:
        claim(elsewhere.failed(), at(12.999))

    assert refused.value.message == (
        "Nothing to claim: run r-1 is tried again at 2026-01-01T12:00:15+00:00."
    )
    assert refused.value.details["state"] == "ERROR"


def test_a_claim_may_be_two_seconds_early(elsewhere: Runs, claim: Bound, at: At) -> None:
    change = claim(elsewhere.failed(), at(13))

    assert change.outcome is Outcome.ACQUIRED
    assert (change.manifest.position.attempt, change.manifest.position.interruptions) == (2, 0)


def test_an_expired_lease_is_taken_over_with_a_higher_token(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    """There is no wait for the sweep: the first worker that asks goes on."""
    change = claim(elsewhere.claimed(), at(30))

    run = change.manifest
    assert change.outcome is Outcome.ACQUIRED
    assert (run.position.lease.lease_id, run.position.lease.holder, run.fencing_token) == (
        "lease-9",
        "desktop",
        2,
    )
    assert (
        run.position.dispatch.generation,
        run.position.attempts.expired,
        run.position.interruptions,
    ) == (1, 1, 1)
    assert run.steps["draft"].started_at == at(0)
    assert [(event.type, event.reason) for event in change.events] == [
        ("step_terminated", "lease_expired")
    ]
    assert change.events[0].model_dump()["holder"] == "laptop"


def test_a_take_over_does_not_wait_for_a_backoff_that_its_attempt_was_early_for(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    run = elsewhere.claimed(elsewhere.failed(), at=13, lease_id="lease-2")
    run = at_position(run, dispatch=replace(run.position.dispatch, not_before=at(100)))

    assert claim(run, at(43)).outcome is Outcome.ACQUIRED


def test_one_expiry_too_many_gives_the_run_up_in_place_of_a_lease(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    change = claim(interrupted_twice(elsewhere.claimed()), at(30))

    run = change.manifest
    assert (change.outcome, run.position.lease, run.fencing_token) == ("dead_lettered", None, 1)
    assert run.dead_letter_reason == "STUCK_IN_PROGRESS"
    assert run.dead_letter_detail == (
        "Step draft was interrupted or lost its lease 3 times without progress; "
        "PIPELINE_MAX_INTERRUPTIONS allows 2."
    )
    assert (run.claimable, run.alarm_at) == (None, at(30 + 60)), "it is archived by then"
    assert [event.type for event in change.events] == ["step_terminated", "step_dead_lettered"]


def test_a_step_that_was_interrupted_as_often_as_is_allowed_may_be_claimed_once_more(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    """The bound is on ends, not on beginnings."""
    assert claim(interrupted_twice(elsewhere.pending()), at(1)).outcome is Outcome.ACQUIRED


def test_a_claim_whose_answer_was_lost_has_its_lease_although_the_run_was_paused_since(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    got = claim(elsewhere.pending(), at(3)).manifest
    paused = lifecycle.pause(got, at(4), rules=elsewhere.rules, actor="ada", reason="").manifest

    again = claim(paused, at(5))

    assert (again.outcome, again.manifest.position.lease) == (Outcome.ACQUIRED, got.position.lease)


def test_a_run_that_a_deploy_allows_no_further_attempt_is_given_up_in_place_of_a_lease(
    elsewhere: Runs, claim: Bound, at: At
) -> None:
    """The bound was lowered while the step waited."""
    change = claim(at_position(elsewhere.pending(), interruptions=3), at(1))

    assert (change.outcome, change.manifest.position.lease) == (Outcome.DEAD_LETTERED, None)
