"""An attempt's ways out: one commit each, fenced, and answered twice the same."""

from __future__ import annotations

from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import CallResult, KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence
from leasehold.domain.status import Outcome, RunStatus, Termination
from leasehold.domain.stored import replace
from leasehold.errors import LeaseLostError
from tests.unit.domain.runs import ARCHIVE, At, Bound, Runs
from tests.worlds.builders import at_position

FENCE = Fence("lease-1", 1)


@pytest.fixture
def complete(rules: Rules) -> Bound:
    return partial(
        lifecycle.complete, rules=rules, fence=FENCE, output=KeptValue(text='"Dear Ada"')
    )


@pytest.fixture
def block(runs: Runs, rules: Rules) -> Bound:
    return partial(
        lifecycle.block,
        rules=rules,
        fence=FENCE,
        output=KeptValue(ref="runs/r-1/values/draft.json"),
        output_status="PARTIAL",
        found=runs.found(),
    )


@pytest.fixture
def fail(runs: Runs, rules: Rules) -> Bound:
    return partial(lifecycle.fail, rules=rules, fence=FENCE, error=runs.error())


@pytest.fixture
def release(rules: Rules) -> Bound:
    return partial(lifecycle.release, rules=rules, fence=FENCE, reason="instance_shutdown")


@pytest.fixture
def settlements(
    complete: Bound,
    block: Bound,
    fail: Bound,
    release: Bound,
) -> dict[str, Bound]:
    return {"complete": complete, "block": block, "fail": fail, "release": release}


# -- complete ----------------------------------------------------------------------------------


def test_an_output_and_the_hand_off_of_the_next_step_are_one_change(
    runs: Runs, complete: Bound, at: At
) -> None:
    change = complete(runs.leased(), at(5), output_status="PARTIAL")

    run = change.manifest
    assert change.outcome is Outcome.HANDED_OFF
    assert (run.status, run.current_step, run.position.lease) == ("PENDING", "send", None)
    assert (run.position.dispatch.generation, run.position.dispatch.step) == (2, "send")
    assert (run.position.dispatch.not_before, run.alarm_at) == (at(5), at(65))
    assert [(task.generation, task.queue) for task in change.owed] == [(2, "mail")]
    assert run.steps["draft"].model_dump(exclude_none=True) == {
        "status": "COMPLETED",
        "startedAt": at(0),
        "completedAt": at(5),
        "handedOffAt": at(5),
        "executionSeconds": 5.0,
        "output": '"Dear Ada"',
        "outputStatus": "PARTIAL",
        "attempts": {
            "failed": 0,
            "interrupted": 0,
            "expired": 0,
            "continued": 0,
            "repeated": 0,
            "deferred": 0,
        },
    }
    assert run.given == KeptValue(text='"Dear Ada"')
    assert (run.position.last_settlement.lease_id, run.position.last_settlement.outcome) == (
        "lease-1",
        "handed_off",
    )


def test_the_counts_and_the_error_of_a_step_end_with_it(
    runs: Runs, complete: Bound, at: At
) -> None:
    """The next step has all its repeats; how often this one failed stays with its record."""
    run = runs.leased(runs.failed(), at=15, lease_id="lease-2")

    done = complete(run, at(20), fence=Fence("lease-2", 2)).manifest

    assert (done.position.attempts.failed, done.position.attempt, done.error, done.error_at) == (
        0,
        1,
        None,
        None,
    )
    assert done.steps["draft"].attempts.failed == 1


def test_the_last_output_completes_the_run(runs: Runs, complete: Bound, at: At) -> None:
    run = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")

    change = complete(run, at(9), fence=Fence("lease-2", 2))

    done = change.manifest
    assert (change.outcome, done.status, done.completed_at) == ("completed", "COMPLETED", at(9))
    assert (done.position.lease, done.alarm_at, done.is_terminal) == (None, at(69), True)
    assert done.steps["send"].handed_off_at is None
    assert change.owed == (ARCHIVE,)


def test_a_completed_run_shows_no_error_of_an_attempt_before(
    runs: Runs, complete: Bound, at: At
) -> None:
    sending = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")
    failed = runs.failed(sending, at=7)
    again = runs.leased(failed, at=60, lease_id="lease-3")

    done = complete(again, at(61), fence=Fence("lease-3", 3)).manifest

    assert (failed.error is None, done.status, done.error, done.error_at) == (
        False,
        "COMPLETED",
        None,
        None,
    )


def test_a_run_that_says_how_often_to_retry_says_so_of_each_step(
    runs: Runs, complete: Bound, rules: Rules, at: At
) -> None:
    run = lifecycle.start(None, at(0), rules=rules, new=runs.new(max_retries=0)).manifest

    dispatch = complete(runs.leased(run), at(5)).manifest.position.dispatch

    assert (dispatch.step, dispatch.max_retries) == ("send", 0)
    assert dispatch.sources["maxRetries"] == "run"


def test_the_output_of_a_paused_run_is_recorded_and_nothing_is_dispatched(
    runs: Runs, complete: Bound, at: At
) -> None:
    change = complete(runs.paused(runs.leased()), at(9))

    run = change.manifest
    assert (change.outcome, run.status, run.current_step) == ("handed_off", "PENDING", "send")
    assert (run.paused, run.position.dispatch.generation, run.alarm_at) == (True, 1, None)
    assert change.owed == ()


def test_the_last_output_ends_a_pause(runs: Runs, complete: Bound, at: At) -> None:
    run = runs.paused(runs.leased(runs.handed_off(), at=6, lease_id="lease-2"))

    done = complete(run, at(9), fence=Fence("lease-2", 2)).manifest

    assert (done.status, done.paused) == ("COMPLETED", False)


def test_an_output_is_kept_although_the_deploy_does_not_know_the_next_step(
    runs: Runs, complete: Bound, at: At
) -> None:
    change = complete(runs.leased(), at(5), rules=runs.knowing_nothing())

    run = change.manifest
    assert (change.outcome, run.status, run.current_step) == ("handed_off", "PENDING", "send")
    assert (run.position.dispatch.step, run.position.dispatch.provisional) == ("send", True)
    assert (run.steps["draft"].output, len(change.owed)) == ('"Dear Ada"', 1)
    assert run.position.last_settlement.outcome is Outcome.HANDED_OFF


# -- block -------------------------------------------------------------------------------------


def test_a_gate_keeps_the_output_and_waits_for_a_person(runs: Runs, block: Bound, at: At) -> None:
    change = block(runs.leased(), at(5))

    run = change.manifest
    assert (change.outcome, run.status, run.current_step) == ("blocked", "BLOCKED", "draft")
    assert (run.position.lease, run.alarm_at, change.owed) == (None, None, ())
    assert run.block == runs.found()
    record = run.steps["draft"]
    assert (record.status, record.output_ref) == ("BLOCKED", "runs/r-1/values/draft.json")
    assert record.output_status == "PARTIAL"
    (event,) = change.events
    assert (event.type, event.reason, event.detail) == ("gate_blocked", "TOO_SHORT", "2 letters")


# -- fail --------------------------------------------------------------------------------------


def test_a_failure_is_kept_whole_and_repeated_after_its_backoff(
    runs: Runs, fail: Bound, at: At
) -> None:
    issues = ({"path": "to", "message": "missing", "input": "{}"},)
    error = replace(runs.error(), validation_issues=issues)

    change = fail(runs.leased(), at(5), error=error)

    run = change.manifest
    assert (change.outcome, run.status, run.position.lease) == ("retry_scheduled", "ERROR", None)
    assert (run.position.dispatch.generation, run.position.dispatch.not_before) == (2, at(15))
    assert (run.alarm_at, run.error_at) == (at(75), at(5))
    assert (run.position.attempts.failed, run.position.attempt) == (1, 2)
    assert (run.error.message, run.error.step, run.error.attempt) == ("Try later.", "draft", 1)
    assert [(task.generation, task.not_before) for task in change.owed] == [(2, at(15))]
    (event,) = change.events
    assert event.model_dump(exclude_none=True) == {
        "type": "step_error",
        "executionSeconds": 5.0,
        "at": at(5),
        "step": "draft",
        "trial": 1,
        "attempt": 1,
        "reason": "AgentClientError",
        "detail": "Try later.",
        "errorCode": "overloaded",
        "validationIssues": issues,
    }


def test_the_second_failure_waits_longer(runs: Runs, fail: Bound, at: At) -> None:
    run = runs.leased(runs.failed(), at=15, lease_id="lease-2")

    change = fail(run, at(20), fence=Fence("lease-2", 2))

    assert change.manifest.position.dispatch.not_before == at(40)


def test_one_failure_more_than_the_repeats_gives_the_run_up(
    runs: Runs, fail: Bound, at: At
) -> None:
    """Two repeats are three attempts."""
    run = runs.leased()
    run = at_position(run, attempts=replace(run.position.attempts, failed=2), failures=2)

    change = fail(run, at(5))

    run = change.manifest
    assert (change.outcome, run.status, run.dead_lettered) == ("dead_lettered", "ERROR", True)
    assert (run.dead_letter_reason, run.dead_lettered_at) == ("RETRIES_EXHAUSTED", at(5))
    assert run.dead_letter_detail == (
        "Step draft failed 3 of 3 times without progress; last: AgentClientError: Try later."
    )
    assert (run.position.attempts.failed, run.position.lease, run.alarm_at) == (3, None, at(65))
    assert change.owed == (ARCHIVE,)
    assert [event.type for event in change.events] == ["step_error", "step_dead_lettered"]
    assert change.events[1].model_dump()["retryCount"] == 2


def test_a_permanent_failure_is_not_repeated(runs: Runs, fail: Bound, at: At) -> None:
    change = fail(runs.leased(), at(5), permanent=True)

    run = change.manifest
    assert (change.outcome, run.dead_letter_reason) == ("dead_lettered", "PERMANENT_FAILURE")
    assert run.dead_letter_detail == "AgentClientError: Try later."
    assert change.events[1].model_dump()["retryCount"] == 0


def test_a_failure_of_a_paused_run_waits_for_nothing_but_the_person(
    runs: Runs, fail: Bound, at: At
) -> None:
    change = fail(runs.paused(runs.leased()), at(9))

    run = change.manifest
    assert (change.outcome, run.status, run.paused) == ("retry_scheduled", "ERROR", True)
    assert (run.position.dispatch.generation, run.alarm_at, change.owed) == (1, None, ())


def test_a_failure_of_a_step_that_is_not_known_any_more_is_retried_by_who_knows_it(
    runs: Runs, fail: Bound, at: At
) -> None:
    change = fail(runs.leased(), at(5), rules=runs.knowing_nothing())

    run = change.manifest
    assert (change.outcome, run.status) == ("retry_scheduled", "ERROR")
    assert (run.error.message, run.position.attempts.failed) == ("Try later.", 1)
    assert [event.type for event in change.events] == ["step_error"]


def test_how_often_a_step_is_repeated_was_decided_when_it_was_dispatched(
    runs: Runs, fail: Bound, at: At
) -> None:
    """A deploy that changes the limit does not change an attempt that runs."""
    run = runs.leased()
    run = at_position(run, dispatch=replace(run.position.dispatch, max_retries=0))

    assert fail(run, at(5)).outcome is Outcome.DEAD_LETTERED


# -- release and expire ------------------------------------------------------------------------

NOON = "2026-01-01T12:00"
OVERRAN = (
    "Attempt 1 of step draft was still running at its dispatch deadline of 180 s, without an "
    "output. Let the handler end in time (ctx.time_left), keep what it has (ctx.checkpoint), or "
    "raise the deadline of the step."
)


def test_a_lease_that_is_given_back_costs_no_repeat_and_no_wait(
    runs: Runs, release: Bound, at: At
) -> None:
    change = release(runs.leased(), at(5))

    run = change.manifest
    assert (change.outcome, run.status, run.position.lease) == ("released", "PENDING", None)
    assert (run.position.dispatch.generation, run.position.dispatch.not_before) == (2, at(5))
    assert (run.position.attempts.interrupted, run.position.attempts.failed) == (1, 0)
    assert run.steps["draft"].status is RunStatus.PENDING
    assert [(event.type, event.reason) for event in change.events] == [
        ("step_terminated", "instance_shutdown")
    ]


@pytest.mark.parametrize("expires_at", [179, 180])
def test_a_lease_that_is_given_back_because_it_ends_counts_as_expired(
    runs: Runs, release: Bound, at: At, expires_at: int
) -> None:
    """So it would have, had the handler not listened. Past its deadline: test_lapse."""
    run = runs.leased()
    assert run.position.lease is not None
    run = at_position(run, lease=replace(run.position.lease, expires_at=at(expires_at)))

    change = release(run, at(175), reason=Termination.LEASE_EXPIRED)

    after = change.manifest
    ends = after.position.attempts
    assert (change.outcome, after.status, after.position.lease) == ("released", "PENDING", None)
    assert (ends.expired, ends.interrupted, ends.failed) == (1, 0, 0)
    assert after.steps["draft"].attempts.expired == 1
    assert [(event.type, event.reason) for event in change.events] == [
        ("step_terminated", "lease_expired")
    ]


def test_interruptions_are_bounded(runs: Runs, release: Bound, at: At) -> None:
    run = runs.leased()
    run = at_position(run, attempts=replace(run.position.attempts, interrupted=2), interruptions=2)

    change = release(run, at(5))

    assert change.outcome is Outcome.DEAD_LETTERED
    assert change.manifest.dead_letter_reason == "STUCK_IN_PROGRESS"
    assert change.manifest.position.attempts.interrupted == 3
    assert change.manifest.position.last_settlement.outcome is Outcome.DEAD_LETTERED


@pytest.mark.parametrize(
    ("lease_id", "second", "gone", "outcome"),
    [
        ("lease-1", 30, False, Outcome.EXPIRED),
        ("lease-1", 29, True, Outcome.EXPIRED),
        ("lease-1", 29, False, Outcome.LEASE_HELD),
        ("lease-0", 30, True, Outcome.MOVED_ON),
    ],
    ids=["over", "its holder is gone", "not over", "another lease"],
)
def test_a_lease_ends_when_its_time_is_over_or_its_holder_is_gone(
    runs: Runs, rules: Rules, at: At, lease_id: str, second: int, gone: bool, outcome: Outcome
) -> None:
    change = lifecycle.expire(
        runs.leased(), at(second), rules=rules, lease_id=lease_id, holder_gone=gone
    )

    assert change.outcome is outcome
    assert change.changed is (outcome is Outcome.EXPIRED)
    assert (change.manifest.position.lease is None) is (outcome is Outcome.EXPIRED)


def test_an_expired_attempt_is_followed_by_the_next_generation(
    runs: Runs, rules: Rules, at: At
) -> None:
    change = lifecycle.expire(runs.leased(), at(31), rules=rules, lease_id="lease-1")

    run = change.manifest
    assert (run.status, run.position.dispatch.generation, run.position.dispatch.not_before) == (
        "PENDING",
        2,
        at(31),
    )
    assert (run.position.attempts.expired, run.position.last_settlement) == (1, None)
    assert [task.generation for task in change.owed] == [2]


@pytest.mark.parametrize(
    ("heard_at", "gone", "reason", "detail"),
    [
        (
            179,
            False,
            "lease_expired",
            f"The lease ran out at {NOON}:30Z: host-a was last heard of at 2026-01-01T12:02:59Z.",
        ),
        (
            179,
            True,
            "lease_expired",
            "The holder's process is gone.",
        ),
        (180, True, "dispatch_deadline_exceeded", f"The holder's process is gone. {OVERRAN}"),
    ],
)
def test_the_trace_says_what_ended_an_attempt_that_went_silent(
    runs: Runs, rules: Rules, at: At, heard_at: int, gone: bool, reason: str, detail: str | None
) -> None:
    """A handler that hung past its deadline is another problem than a machine that died."""
    run = at_position(runs.leased(), heartbeat_at=at(heard_at))

    change = lifecycle.expire(run, at(200), rules=rules, lease_id="lease-1", holder_gone=gone)

    assert [(event.reason, event.detail) for event in change.events] == [(reason, detail)]


def test_a_clock_that_is_set_back_makes_no_time_negative(
    runs: Runs, complete: Bound, at: At
) -> None:
    change = complete(runs.leased(at=1000), at(5))

    assert change.manifest.steps["draft"].execution_seconds == 0


# -- fencing and repetition --------------------------------------------------------------------

SETTLEMENTS = ["complete", "block", "fail", "release"]


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_a_settlement_that_is_repeated_gets_its_first_answer(
    runs: Runs,
    settlements: dict[str, Bound],
    complete: Bound,
    at: At,
    name: str,
) -> None:
    """The commit stood, but its answer was lost: whatever is said now, that was the outcome."""
    first = complete(runs.leased(), at(5)).manifest

    again = settlements[name](first, at(300))

    assert (again.outcome, again.changed, again.manifest) == (Outcome.HANDED_OFF, False, first)
    assert [task.generation for task in again.owed] == [2]


def test_a_settlement_is_known_although_a_person_took_the_run_further_since(
    runs: Runs, block: Bound, at: At
) -> None:
    """Whose answer was lost: it did not lose its lease."""
    approved = lifecycle.approve(
        block(runs.leased(), at(5)).manifest, at(6), rules=runs.rules, actor="ada", reason=""
    ).manifest

    again = block(approved, at(7))

    assert (approved.current_step, again.outcome, again.changed) == ("send", Outcome.BLOCKED, False)


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_an_expired_lease_cannot_settle_even_without_a_takeover(
    runs: Runs, settlements: dict[str, Bound], at: At, name: str
) -> None:
    with pytest.raises(LeaseLostError):
        settlements[name](runs.leased(), at(30))


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_a_worker_that_was_replaced_cannot_settle(
    runs: Runs, settlements: dict[str, Bound], at: At, name: str
) -> None:
    taken = runs.leased(runs.leased(), at=30, lease_id="lease-2")

    with pytest.raises(LeaseLostError):
        settlements[name](taken, at(31))


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_what_a_worker_delivers_to_a_cancelled_run_is_discarded(
    runs: Runs, settlements: dict[str, Bound], at: At, name: str
) -> None:
    """It hears why, so that it need not take it for an error."""
    run = runs.cancelled(runs.leased())

    change = settlements[name](run, at(8))

    assert (change.outcome, change.changed) == (Outcome.CANCELLED, False)
    assert change.owed == (ARCHIVE,)


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_a_repetition_with_another_token_is_no_repetition(
    runs: Runs, settlements: dict[str, Bound], complete: Bound, at: At, name: str
) -> None:
    """The answer is for the worker that settled, not for one that guesses the lease."""
    first = complete(runs.leased(), at(5)).manifest

    with pytest.raises(LeaseLostError) as lost:
        settlements[name](first, at(6), fence=Fence("lease-1", 2))

    assert lost.value.details["known"] == "the run has no lease, it is PENDING"
    assert (lost.value.details["fencing_token"], lost.value.details["holder"]) == (1, None)


def test_what_is_delivered_to_a_cancelled_run_with_another_token_is_refused(
    runs: Runs, complete: Bound, at: At
) -> None:
    run = runs.cancelled(runs.leased())

    with pytest.raises(LeaseLostError) as lost:
        complete(run, at(8), fence=Fence("lease-1", 2))

    assert lost.value.details["state"] == "cancelled and PENDING"
    assert lost.value.details["cancelled"]


def test_a_settlement_is_noted_with_the_token_that_was_shown(
    runs: Runs, complete: Bound, at: At
) -> None:
    run = runs.leased(runs.leased(), at=30, lease_id="lease-2")

    note = complete(run, at(31), fence=Fence("lease-2", 2)).manifest.position.last_settlement

    assert note.model_dump(exclude_none=True) == {
        "leaseId": "lease-2",
        "fencingToken": 2,
        "outcome": Outcome.HANDED_OFF,
    }


@pytest.mark.parametrize("is_last", [False, True])
def test_a_step_takes_with_it_what_was_only_for_its_attempts(runs: Runs, is_last: bool) -> None:
    """The next one has no note, no block of before, and of what people told what is to be kept."""
    step = "send" if is_last else "draft"
    told = [
        CallResult(step=step, trial=1, key=str(keep), type="str", inline='"yes"', keep=keep)
        for keep in (True, False)
    ]
    run = runs.leased(runs.handed_off(), at=6, lease_id="lease-2") if is_last else runs.leased()
    dispatch = replace(run.position.dispatch, after_block=runs.found())
    run = at_position(run, calls=tuple(told), note="Be brief.", dispatch=dispatch)

    output = KeptValue(text='"Dear Ada"')
    complete = partial(
        lifecycle.complete, now=runs.at(9), rules=runs.rules, fence=runs.fence(run), output=output
    )
    at = complete(run).manifest.position
    paused = complete(replace(run, paused=True)).manifest.position  # its next step waits

    assert (at.calls, at.note) == ((told[0],), None)
    assert is_last or (at.dispatch.after_block, paused.dispatch.after_block) == (None, None)
