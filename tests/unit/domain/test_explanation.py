"""The reason why a run waits, until when, and what happens then, in one sentence."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.dispatch import Rules
from leasehold.domain.explanation import Explanation, explain
from leasehold.domain.manifest import Manifest
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Runs
from tests.unit.domain.trial_runs import TrialRun
from tests.worlds.builders import at_position


def words(run: Manifest, at: At, second: float, rules: Rules) -> str:
    return explain(run, at(second), rules).words


def test_a_run_in_a_later_trial_says_so() -> None:
    run = TrialRun.begun().output().trial(0.5)

    waits = explain(run.run, run.now, run.rules).what
    assert waits == "a worker to take attempt 1 of step write in trial 2 of 3 from queue write"
    run.lease()
    held = explain(run.run, run.now, run.rules).what
    assert held == "host-a to finish attempt 1 of step write in trial 2 of 3"


# -- for a worker --------------------------------------------------------------------------------


def test_a_dispatched_step_waits_for_a_worker_to_take_it(runs: Runs, rules: Rules, at: At) -> None:
    found = explain(runs.pending(), at(1), rules)

    assert found == Explanation(
        what="a worker to take attempt 1 of step draft from queue draft",
        until=at(60),
        then=found.then,
        words=(
            "Run r-1 waits for a worker to take attempt 1 of step draft from queue draft, until "
            "2026-01-01T12:01:00Z; if nothing happens by then, its task is looked "
            "for, and if it is lost the step gets a new one."
        ),
    )
    assert found.then == "redispatched"


def test_a_failed_step_waits_for_its_time(runs: Runs, rules: Rules, at: At) -> None:
    assert words(runs.failed(), at, 6, rules) == (
        "Run r-1 waits for the time of attempt 2 of step draft, 2026-01-01T12:00:15Z, until "
        "2026-01-01T12:01:15Z; if nothing happens by then, its task is looked for, and if "
        "it is lost the step gets a new one."
    )


def test_a_running_step_waits_for_its_holder(runs: Runs, rules: Rules, at: At) -> None:
    assert words(runs.leased(), at, 29, rules) == (
        "Run r-1 waits for host-a to finish attempt 1 of step draft, until 2026-01-01T12:00:30Z; "
        "if nothing happens by then, the step is dispatched again."
    )


def test_a_step_whose_process_is_gone_waits_for_another_worker(
    runs: Runs, rules: Rules, at: At
) -> None:
    """To say that a process will finish that is not there would let people wait for nothing."""
    found = explain(runs.leased(), at(7), rules, holder_gone=True)
    late = explain(runs.leased(), at(30), rules, holder_gone=True)
    paused = explain(runs.paused(runs.leased()), at(7), rules, holder_gone=True)

    sentence = (
        "Run r-1 waits for a worker to take over attempt 1 of step draft, whose process host-a is "
        "gone (a server that starts on this machine does so at once, the sweep when the lease "
        "ends), until 2026-01-01T12:00:30Z; if nothing happens by then, "
    )
    assert found.words == f"{sentence}the step is dispatched again."
    assert paused.words == f"{sentence}the lease is ended, and the run stays paused."
    assert late.words == explain(runs.leased(), at(30), rules).words


def test_an_expired_lease_waits_for_the_sweep(runs: Runs, rules: Rules, at: At) -> None:
    assert words(runs.leased(), at, 30, rules) == (
        "Run r-1 waits for the sweep to end the lease that host-a did not renew on step draft, "
        "which was due at 2026-01-01T12:00:30Z; the step is dispatched again."
    )


def test_a_step_elsewhere_waits_to_be_claimed_or_is_given_up(elsewhere: Runs, at: At) -> None:
    assert words(elsewhere.pending(), at, 1, elsewhere.rules) == (
        "Run r-1 waits for a remote worker to claim attempt 1 of step draft, until "
        "2026-01-01T12:10:00Z; if nothing happens by then, the run is given up as NEVER_STARTED."
    )


def test_a_run_that_would_be_given_up_says_so(runs: Runs, rules: Rules, at: At) -> None:
    stuck = at_position(runs.leased(), interruptions=2)
    late = runs.failed()
    late = at_position(late, dispatch=replace(late.position.dispatch, lost_since=at(5)))
    lost = at_position(
        runs.pending(), dispatch=replace(runs.pending().position.dispatch, redispatched=2)
    )

    sentences = [
        words(stuck, at, 1, rules),
        words(late, at, 75, replace(rules, recovery_window=timedelta(seconds=70))),
        words(lost, at, 1, rules),
    ]

    assert [one.rpartition("; ")[2] for one in sentences] == [
        "if nothing happens by then, the run is given up as STUCK_IN_PROGRESS.",
        "the run is given up as UNRECOVERED_ERROR.",
        "if nothing happens by then, the run is given up as NEVER_STARTED.",
    ]


def test_at_the_end_of_the_window_it_says_what_the_sweep_will_do_a_second_later(
    runs: Runs, rules: Rules, at: At
) -> None:
    """The alarm of the last task falls on the end of a short window."""
    short = replace(rules, recovery_window=timedelta(seconds=30))
    run = runs.failed()
    run = at_position(run, dispatch=replace(run.position.dispatch, lost_since=at(45)))

    answer = explain(run, at(20), short)
    done = lifecycle.on_alarm(run, at(76), rules=short, generation=2, in_queue=False)

    assert answer.until == at(75)
    assert answer.then is done.outcome
    assert answer.words.endswith("the run is given up as UNRECOVERED_ERROR.")


def test_a_step_that_the_deploy_does_not_know_would_block(runs: Runs, at: At) -> None:
    rules = runs.knowing_nothing()

    assert words(runs.pending(), at, 1, rules).endswith(
        "the run is blocked, unless a worker lives that knows the step. The catalog here knows no "
        "step."
    )
    assert explain(runs.pending(), at(1), rules, steps=["draft2", "ship"]).words.endswith(
        " The catalog here knows draft2, ship."
    )
    assert explain(runs.unknown(), at(90), rules, steps=["ship"]).words.endswith(
        "`retry` has it look now. It was to look at 2026-01-01T12:01:10Z: a worker that knows the "
        "step looks again. The catalog here knows ship."
    )


# -- for a person --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["pending", "failed", "blocked"])
def test_a_paused_run_waits_for_a_person(runs: Runs, rules: Rules, at: At, state: str) -> None:
    found = explain(runs.paused(getattr(runs, state)()), at(90_000), rules)

    assert (found.until, found.then) == (None, None)
    assert found.words == "Run r-1 waits for a person to resume it (resume or cancel)."


def test_a_paused_run_whose_attempt_runs_waits_for_that_first(
    runs: Runs, rules: Rules, at: At
) -> None:
    """It would not be dispatched again."""
    assert words(runs.paused(runs.leased()), at, 7, rules) == (
        "Run r-1 waits for host-a to finish attempt 1 of step draft, until 2026-01-01T12:00:30Z; "
        "if nothing happens by then, the lease is ended, and the run stays paused."
    )


def test_a_blocked_run_waits_for_a_decision(runs: Runs, rules: Rules, at: At) -> None:
    found = explain(runs.blocked(), at(90_000), rules)

    assert (found.until, found.then) == (None, None)
    assert found.words == (
        "Run r-1 waits for a person to decide on step draft (approve, retry or cancel): "
        "2 letters. Approve or retry."
    )
    assert found.operations == ("approve", "retry", "cancel")


def test_a_run_of_an_unknown_step_cannot_be_approved(runs: Runs, rules: Rules, at: At) -> None:
    """There is no output to hand off: the offer would be refused."""
    found = explain(runs.unknown(), at(61), rules)

    assert found.operations == ("retry", "cancel")
    assert found.words == (
        "Run r-1 waits for the code to be put right at step draft (retry or cancel): No catalog "
        "that is deployed has the step 'draft'. Deploy a catalog that has that step or pipeline; "
        "the run goes on by itself then, and `retry` has it look now. It looks "
        "again at 2026-01-01T12:01:10Z: the step is tried again where it stands."
    )


def test_a_look_that_is_late_is_said_to_be(runs: Runs, rules: Rules, at: At) -> None:
    found = explain(runs.unknown(), at(90), rules)

    assert found.words.endswith(
        "`retry` has it look now. It was to look at 2026-01-01T12:01:10Z: the step is tried again "
        "where it stands."
    )


@pytest.mark.parametrize("state", ["pending", "failed", "blocked", "unknown"])
def test_what_is_offered_is_allowed(runs: Runs, rules: Rules, at: At, state: str) -> None:
    run = getattr(runs, state)()

    for each in (run, runs.paused(run)):
        for operation in explain(each, at(9), rules).operations:
            lifecycle.check_allowed(each, operation)


# -- for nothing ---------------------------------------------------------------------------------


def test_a_run_that_is_over_waits_for_nothing(runs: Runs, rules: Rules, at: At) -> None:
    ended = [runs.completed(), runs.cancelled(runs.pending()), runs.dead_lettered()]
    over = [runs.archived(run) for run in ended]

    found = [explain(run, at(90_000), rules) for run in over]

    assert [(one.what, one.until, one.then) for one in found] == [(None, None, None)] * 3
    assert [one.words for one in found] == [
        "Run r-1 waits for nothing: it is completed.",
        (
            "Run r-1 waits for nothing: it was cancelled. "
            "`leasehold recreate r-1` makes a new run of it."
        ),
        (
            "Run r-1 waits for nothing: it was given up as PERMANENT_FAILURE at step draft. "
            "AgentClientError: Try later. `leasehold recreate r-1` makes a new run of it."
        ),
    ]


def test_a_detail_without_a_full_stop_gets_one(runs: Runs, rules: Rules, at: At) -> None:
    run = replace(runs.dead_lettered(), dead_letter_detail="PermanentError: the folder is gone")

    assert "the folder is gone. `leasehold recreate" in words(run, at, 6, rules)


def test_a_run_that_was_recreated_names_the_new_one(runs: Runs, rules: Rules, at: At) -> None:
    """Else a person who asks why recreates it once more, and has the work done twice."""
    once = replace(runs.dead_lettered(), recreated_as=("r-2",))
    more = replace(runs.cancelled(runs.pending()), recreated_as=("r-2", "r-3", "r-4"))

    assert "Try later. Run r-2 was made of it: `leasehold why r-2`." in words(once, at, 6, rules)
    assert "recreate" not in words(once, at, 6, rules)
    assert "cancelled. Runs r-2, r-3 and r-4 were made of it: `leasehold why r-4`." in words(
        more, at, 6, rules
    )


# -- for a repair --------------------------------------------------------------------------------


def test_a_run_that_nothing_will_move_waits_for_a_repair(runs: Runs, rules: Rules, at: At) -> None:
    """To say that it waits for a worker would let people wait with it."""
    assert words(replace(runs.pending(), alarm_at=None), at, 1, rules) == (
        "Run r-1 waits for a repair (leasehold audit --repair): It is PENDING, and owes its task, "
        "and has no alarm."
    )


def test_a_broken_run_that_has_an_alarm_is_repaired_then(runs: Runs, rules: Rules, at: At) -> None:
    run = at_position(runs.leased(), lease=None)

    found = explain(run, at(7), rules)

    assert (found.until, found.then) == (at(30), "redispatched")
    assert found.words.startswith(
        "Run r-1 waits for a repair (leasehold audit --repair): It is IN_PROGRESS, but no "
        "worker holds a lease, until 2026-01-01T12:00:30Z; if nothing happens by then, "
    )


def test_an_attempt_that_hung_says_that_it_will_count_as_failed(
    runs: Runs, rules: Rules, at: At
) -> None:
    """Past its deadline of 180 s its worker still renews, and the sweep comes when it stops."""
    found = explain(at_position(runs.leased(), heartbeat_at=at(190)), at(200), rules)

    assert found.words.endswith(
        "; the attempt counts as failed, and the step is tried again after its backoff."
    )
