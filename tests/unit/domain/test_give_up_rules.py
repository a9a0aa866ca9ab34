"""When a run is given up: each rule, its border, and which comes first."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import CallCount
from leasehold.domain.dispatch import Rules
from leasehold.domain.give_up_rules import Verdict, verdict_on, verdict_on_wait
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import Notes
from leasehold.domain.status import DeadLetterReason
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position


def failed(run: Manifest, *, times: int, permanent: bool = False) -> Manifest:
    """The run as if its step had failed so often."""
    assert run.error is not None
    return at_position(
        replace(run, error=replace(run.error, permanent=permanent)),
        attempts=replace(run.position.attempts, failed=times),
        failures=times,
    )


def lost(run: Manifest, tasks: int) -> Manifest:
    return at_position(run, dispatch=replace(run.position.dispatch, redispatched=tasks))


def reason_of(found: Verdict | None) -> str | None:
    return None if found is None else found.reason.value


@pytest.mark.parametrize("state", ["pending", "leased", "failed", "blocked", "handed_off"])
def test_a_run_that_goes_on_as_it_should_is_not_given_up(
    runs: Runs, rules: Rules, at: At, state: str
) -> None:
    assert verdict_on(getattr(runs, state)(), at(20), rules) is None


# -- permanent -----------------------------------------------------------------------------------


def test_a_permanent_failure_is_the_last_one(runs: Runs, rules: Rules, at: At) -> None:
    run = failed(runs.failed(), times=1, permanent=True)

    found = verdict_on(run, at(5), rules)

    assert found == Verdict(DeadLetterReason.PERMANENT_FAILURE, "AgentClientError: Try later.")


def test_a_permanent_failure_that_a_person_asked_to_try_again_is_over(
    runs: Runs, rules: Rules, at: At
) -> None:
    run = failed(runs.failed(), times=1, permanent=True)
    run = lifecycle.retry(run, at(6), rules=rules, actor="ada", reason="mended").manifest

    assert verdict_on(run, at(7), rules) is None


def test_what_a_verdict_says_of_an_error_is_bounded(runs: Runs, rules: Rules, at: At) -> None:
    run = failed(runs.failed(), times=1, permanent=True)
    assert run.error is not None
    run = replace(run, error=replace(run.error, message="x" * 4000))

    found = verdict_on(run, at(5), rules)

    assert found is not None
    assert len(found.detail) == 500


# -- retries -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("times", "reason"), [(2, None), (3, "RETRIES_EXHAUSTED")])
def test_two_retries_are_three_attempts(
    runs: Runs, rules: Rules, at: At, times: int, reason: str | None
) -> None:
    run = failed(runs.failed(), times=times)

    assert reason_of(verdict_on(run, at(5), rules)) == reason


def test_a_step_that_is_out_of_retries_says_how_often_and_how_it_failed(
    runs: Runs, rules: Rules, at: At
) -> None:
    found = verdict_on(failed(runs.failed(), times=3), at(5), rules)

    assert found is not None
    assert (
        found.detail
        == "Step draft failed 3 of 3 times without progress; last: AgentClientError: Try later."
    )


def test_progress_gives_a_step_its_retries_again_and_its_first_wait(runs: Runs, at: At) -> None:
    """A loop of many items meets an error now and then; each attempt is further than the last."""
    run = runs.leased()

    for items in range(1, 9):
        run = runs.checkpointed(run, at=10 * items, iterations=items)
        run = runs.failed(run, at=10 * items)
        assert (run.position.failures, run.position.attempts.failed) == (1, items)
        assert run.position.dispatch.not_before == at(10 * items + 10), (
            "the wait after a first failure"
        )
        run = runs.leased(run, at=10 * items + 10, lease_id=f"lease-{items}")


def test_a_recorded_call_gives_a_step_its_retries_again(runs: Runs, at: At) -> None:
    run = at_position(runs.leased(), failures=2)
    notes = Notes(calls=CallCount(made=1), recorded_calls=1)

    recorded = lifecycle.renew(
        run, at(5), rules=runs.rules, fence=runs.fence(run), notes=notes
    ).manifest

    assert recorded.position.failures == 0
    assert runs.failed(recorded, at=6).position.failures == 1


@pytest.mark.parametrize(("total", "reason"), [(100, None), (101, "RETRIES_EXHAUSTED")])
def test_progress_is_no_way_to_fail_forever(
    runs: Runs, rules: Rules, at: At, total: int, reason: str | None
) -> None:
    run = at_position(failed(runs.failed(), times=total), failures=1)

    assert reason_of(verdict_on(run, at(5), rules)) == reason


def test_a_step_that_failed_too_often_in_all_says_so(runs: Runs, rules: Rules, at: At) -> None:
    found = verdict_on(at_position(failed(runs.failed(), times=101), failures=1), at(5), rules)

    assert found is not None
    assert found.detail == (
        "Step draft failed 101 times, with progress in between; at most 100 are allowed; "
        "last: AgentClientError: Try later."
    )


def test_retries_that_a_step_has_go_over_the_bound_of_all_failures(
    runs: Runs, rules: Rules, at: At
) -> None:
    run = failed(runs.failed(), times=2)

    assert verdict_on(run, at(5), replace(rules, max_failures=0)) is None


def test_a_person_who_retries_gives_the_step_its_retries_again(
    runs: Runs, rules: Rules, at: At
) -> None:
    run = failed(runs.failed(), times=2)

    run = lifecycle.retry(run, at(6), rules=rules, actor="ada", reason="").manifest

    assert (run.position.failures, run.position.attempts.failed) == (0, 2)


def test_only_what_failed_uses_up_retries(runs: Runs, rules: Rules, at: At) -> None:
    """A run that a person tries again is PENDING, however often it failed."""
    run = runs.pending()

    run = at_position(run, attempts=replace(run.position.attempts, failed=3, interrupted=9))

    assert verdict_on(run, at(5), rules) is None


# -- stuck ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("times", "reason"), [(2, None), (3, "STUCK_IN_PROGRESS")])
@pytest.mark.parametrize("state", ["pending", "leased"])
def test_two_interruptions_are_allowed(
    runs: Runs, rules: Rules, at: At, state: str, times: int, reason: str | None
) -> None:
    run = at_position(getattr(runs, state)(), interruptions=times)

    assert reason_of(verdict_on(run, at(20), rules)) == reason


def test_a_stuck_step_says_how_often_it_was_cut_short(runs: Runs, rules: Rules, at: At) -> None:
    found = verdict_on(at_position(runs.leased(), interruptions=3), at(20), rules)

    assert found is not None
    assert found.detail == (
        "Step draft was interrupted or lost its lease 3 times without progress; "
        "PIPELINE_MAX_INTERRUPTIONS allows 2."
    )


@pytest.mark.parametrize(("silences", "reason"), [(1, None), (2, "STUCK_IN_PROGRESS")])
@pytest.mark.parametrize("interruptions", [1, 2])
def test_the_second_silence_gives_a_run_up_and_no_other_interruption_counts_as_one(
    runs: Runs, rules: Rules, at: At, silences: int, interruptions: int, reason: str | None
) -> None:
    """What a silence is, and who counts it: test_lapse."""
    run = at_position(runs.leased(), interruptions=interruptions, silences=silences)

    assert reason_of(verdict_on(run, at(9999), rules)) == reason


# -- unrecovered ---------------------------------------------------------------------------------


def lost_since(run: Manifest, at: At, second: float) -> Manifest:
    """The run whose task is known to be lost since then, and sweeps ran all the time."""
    return at_position(
        run, dispatch=replace(run.position.dispatch, redispatched=1, lost_since=at(second))
    )


@pytest.mark.parametrize(("second", "reason"), [(3674.999, None), (3675, "UNRECOVERED_ERROR")])
def test_a_failed_run_whose_task_is_lost_may_be_tried_again_within_an_hour(
    runs: Runs, rules: Rules, at: At, second: float, reason: str | None
) -> None:
    """`why` asks at the alarm itself and the sweep comes later: the border belongs to the end."""
    run = lost_since(runs.failed(), at, 75)

    assert reason_of(verdict_on_wait(run, at(second), rules)) == reason


def test_an_unrecovered_run_says_how_long_it_waited(runs: Runs, rules: Rules, at: At) -> None:
    found = verdict_on_wait(lost_since(runs.failed(), at, 75), at(4075), rules)

    assert found is not None
    assert found.detail == (
        "Step draft failed, and its next attempt was not begun within 4000 s in which the sweep "
        "ran; the recovery window has 3600 s."
    )


def test_a_failed_run_of_which_no_task_is_known_to_be_lost_waits_on(
    runs: Runs, rules: Rules, at: At
) -> None:
    """For as long as other runs are before it."""
    assert verdict_on_wait(runs.failed(), at(900_000), rules) is None


@pytest.mark.parametrize("second", [4000, 900_000])
def test_no_time_gives_a_run_up_whose_hint_arrives(
    runs: Runs, rules: Rules, at: At, second: float
) -> None:
    """A task proves a queue that delivers, however late."""
    run = lost_since(runs.failed(), at, 75)
    run = at_position(run, dispatch=replace(run.position.dispatch, redispatched=9))

    taken = runs.leased(run, at=second, lease_id="lease-2")

    assert verdict_on(run, at(second), rules) is None
    assert (
        taken.status,
        taken.position.dispatch.redispatched,
        taken.position.dispatch.lost_since,
    ) == (
        "IN_PROGRESS",
        0,
        None,
    )


@pytest.mark.parametrize("operation", ["resume", "retry"])
def test_time_parked_does_not_count(runs: Runs, rules: Rules, at: At, operation: str) -> None:
    run = lost_since(runs.failed(), at, 75)
    run = runs.paused(run) if operation == "resume" else run
    run = getattr(lifecycle, operation)(
        run, at(90_000), rules=rules, actor="ada", reason="back from leave"
    ).manifest

    assert verdict_on_wait(run, at(90_001), rules) is None


def test_a_failed_step_that_is_claimed_elsewhere_may_wait_as_long_as_its_entry_says(
    elsewhere: Runs, at: At
) -> None:
    """Nothing gives a run up before the time that `why` names."""
    run = elsewhere.failed()
    short = replace(elsewhere.rules, recovery_window=timedelta(seconds=100))

    assert run.alarm_at == at(615)
    assert verdict_on_wait(run, at(614), short) is None
    assert reason_of(verdict_on_wait(run, at(615), short)) == "UNRECOVERED_ERROR"


# -- never started -------------------------------------------------------------------------------


@pytest.mark.parametrize(("tasks", "reason"), [(2, None), (3, "NEVER_STARTED")])
def test_two_tasks_may_be_lost(
    runs: Runs, rules: Rules, at: At, tasks: int, reason: str | None
) -> None:
    assert reason_of(verdict_on_wait(lost(runs.pending(), tasks), at(60), rules)) == reason


def test_a_run_whose_tasks_ran_out_says_how_many(runs: Runs, rules: Rules, at: At) -> None:
    found = verdict_on_wait(lost(runs.pending(), 3), at(60), rules)

    assert found is not None
    assert found.detail == "3 tasks of step draft were lost before one got the lease."


def test_the_first_lease_begins_the_count_anew(runs: Runs) -> None:
    assert runs.leased(lost(runs.pending(), 2)).position.dispatch.redispatched == 0


@pytest.mark.parametrize(("second", "reason"), [(599.999, None), (600, "NEVER_STARTED")])
def test_a_step_elsewhere_may_wait_as_long_as_its_entry_says(
    elsewhere: Runs, at: At, second: float, reason: str | None
) -> None:
    assert reason_of(verdict_on_wait(elsewhere.pending(), at(second), elsewhere.rules)) == reason


@pytest.mark.parametrize("second", [600, 90_000])
def test_no_claim_comes_too_late_while_the_run_waits(elsewhere: Runs, second: float) -> None:
    """A claim proves a worker; the run was not given up before."""
    assert elsewhere.claimed(at=second).status == "IN_PROGRESS"


def test_a_step_elsewhere_that_fails_late_was_started_all_the_same(elsewhere: Runs, at: At) -> None:
    """It was claimed in time, and is still worked on once the time to claim it is over."""
    run = elsewhere.claimed(at=530)
    for second in range(550, 700, 20):
        run = lifecycle.renew(
            run, at(second), rules=elsewhere.rules, fence=elsewhere.fence(run)
        ).manifest

    change = lifecycle.fail(
        run, at(700), rules=elsewhere.rules, fence=elsewhere.fence(run), error=elsewhere.error()
    )

    assert change.outcome == "retry_scheduled"
    assert change.manifest.alarm_at == at(700 + 10 + 600)


# -- which comes first ---------------------------------------------------------------------------


def test_what_is_known_for_sure_comes_first(runs: Runs, rules: Rules, at: At) -> None:
    """One run to which every rule applies, and each of them taken away in its turn."""
    run = lost_since(failed(runs.failed(), times=3, permanent=True), at, 75)
    run = at_position(lost(run, 3), interruptions=3)
    assert run.error is not None

    def found(second: float) -> str | None:
        now = at(second)
        return reason_of(verdict_on(run, now, rules) or verdict_on_wait(run, now, rules))

    reasons = [found(9000)]
    run = replace(run, error=replace(run.error, permanent=False))
    reasons.append(found(9000))
    run = failed(run, times=2)
    reasons.append(found(9000))
    run = at_position(run, interruptions=2)
    reasons += [found(9000), found(90)]

    assert reasons == [
        "PERMANENT_FAILURE",
        "RETRIES_EXHAUSTED",
        "STUCK_IN_PROGRESS",
        "UNRECOVERED_ERROR",
        "NEVER_STARTED",
    ]
