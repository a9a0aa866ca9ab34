"""The action at the alarm of a run."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import owed_tasks
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Bound, Runs
from tests.worlds.builders import at_position


@pytest.fixture
def on_alarm(rules: Rules) -> Bound:
    """A sweep that did not find the task of generation 1."""
    return partial(
        lifecycle.on_alarm, rules=rules, generation=1, in_queue=False, sweep_job_id="sweep-1"
    )


@pytest.mark.parametrize(
    ("state", "second"), [("pending", 59.999), ("leased", 29.999), ("failed", 74.999)]
)
def test_before_its_alarm_a_run_is_left_alone(
    runs: Runs, on_alarm: Bound, at: At, state: str, second: float
) -> None:
    run = getattr(runs, state)()

    change = on_alarm(run, at(second), generation=run.position.dispatch.generation)

    assert (change.outcome, change.changed, change.manifest) == (Outcome.NOT_DUE, False, run)


@pytest.mark.parametrize("state", ["blocked", "completed", "dead_lettered"])
def test_a_run_without_an_alarm_is_left_alone(
    runs: Runs, on_alarm: Bound, at: At, state: str
) -> None:
    run = getattr(runs, state)()
    if run.is_terminal:
        run = runs.archived(run)

    change = on_alarm(run, at(90_000))

    assert (change.outcome, change.changed) == (Outcome.NOT_DUE, False)


def test_an_expired_lease_is_ended_and_the_step_dispatched_again(
    runs: Runs, on_alarm: Bound, at: At
) -> None:
    change = on_alarm(runs.leased(), at(30))

    run = change.manifest
    assert (change.outcome, run.status, run.position.lease) == (Outcome.EXPIRED, "PENDING", None)
    assert (run.position.dispatch.generation, run.alarm_at, len(change.owed)) == (2, at(90), 1)
    assert (run.position.interruptions, run.position.attempts.expired) == (1, 1)
    assert [(event.type, event.reason) for event in change.events] == [
        ("step_terminated", "lease_expired"),
        ("step_recovered", None),
    ]
    assert change.events[1].model_dump()["sweepJobId"] == "sweep-1"


def test_an_expired_lease_too_many_gives_the_run_up(runs: Runs, on_alarm: Bound, at: At) -> None:
    change = on_alarm(at_position(runs.leased(), interruptions=2), at(30))

    assert change.outcome is Outcome.DEAD_LETTERED
    assert change.manifest.dead_letter_reason == "STUCK_IN_PROGRESS"
    assert [event.type for event in change.events] == ["step_terminated", "step_dead_lettered"]
    assert change.events[1].model_dump()["sweepJobId"] == "sweep-1"


def test_a_paused_run_loses_its_expired_lease_and_waits(
    runs: Runs, on_alarm: Bound, at: At
) -> None:
    change = on_alarm(runs.paused(runs.leased()), at(30))

    run = change.manifest
    assert (change.outcome, run.paused, run.position.lease) == (Outcome.EXPIRED, True, None)
    assert (run.status, run.position.dispatch.generation, run.alarm_at) == ("PENDING", 1, None)
    assert change.owed == ()
    assert [event.type for event in change.events] == ["step_terminated"]


def test_a_task_that_was_never_created_is_created(runs: Runs, on_alarm: Bound, at: At) -> None:
    run = runs.pending()
    assert [task.generation for task in owed_tasks(run)] == [1]

    change = on_alarm(run, at(60))

    assert (change.outcome, change.manifest.position.dispatch.redispatched) == (
        Outcome.REDISPATCHED,
        1,
    )
    assert [(task.generation, task.not_before) for task in change.owed] == [(2, at(60))]


def test_a_task_in_a_paused_queue_is_left_there_forever(
    runs: Runs, on_alarm: Bound, at: At
) -> None:
    """A day of sweeps, one a grace: the queue gets no second task, and nothing is given up."""
    run = runs.pending()
    for minute in range(1, 1441):
        change = on_alarm(run, at(60 * minute), in_queue=True)
        assert (change.outcome, change.owed, change.events) == (Outcome.STILL_QUEUED, (), ())
        run = change.manifest

    assert (run.position.dispatch.generation, run.position.dispatch.redispatched) == (1, 0)
    assert run.alarm_at == at(60 * 1441)


def test_tasks_that_are_lost_again_and_again_run_out(runs: Runs, on_alarm: Bound, at: At) -> None:
    run, outcomes = runs.pending(), []
    for generation in (1, 2, 3):
        change = on_alarm(run, at(60 * generation), generation=generation)
        run = change.manifest
        outcomes.append(change.outcome.value)

    assert outcomes == ["redispatched", "redispatched", "dead_lettered"]
    assert run.dead_letter_reason == "NEVER_STARTED"
    assert run.dead_letter_detail == "3 tasks of step draft were lost before one got the lease."


def test_a_task_that_is_found_after_two_were_lost_is_not_the_third(
    runs: Runs, on_alarm: Bound, at: At
) -> None:
    run = runs.pending()
    for generation in (1, 2):
        run = on_alarm(run, at(60 * generation), generation=generation).manifest

    change = on_alarm(run, at(180), generation=3, in_queue=True)

    assert (change.outcome, change.manifest.position.dispatch.redispatched) == (
        Outcome.STILL_QUEUED,
        2,
    )


def test_a_step_that_changes_hands_loses_no_task_by_it(
    runs: Runs, elsewhere: Runs, on_alarm: Bound, at: At
) -> None:
    """A step for workers elsewhere has no task that could be lost."""
    run = elsewhere.pending()

    run = on_alarm(run, at(600), rules=runs.rules).manifest

    assert (run.position.dispatch.remote, run.position.dispatch.generation) == (False, 2)
    assert run.position.dispatch.redispatched == 0


@pytest.mark.parametrize("second", [75, 9000])
def test_a_step_that_the_deploy_does_not_know_blocks_whenever_it_is_found(
    runs: Runs, on_alarm: Bound, at: At, second: int
) -> None:
    """As for a hint that arrives; a person decides, and no window has passed."""
    change = on_alarm(runs.failed(), at(second), rules=runs.knowing_nothing(), generation=2)

    assert (change.outcome, change.manifest.status) == (Outcome.BLOCKED, "BLOCKED")


@pytest.mark.parametrize("in_queue", [True, None])
def test_an_unknown_step_whose_task_waits_is_left_to_a_worker_that_knows_it(
    runs: Runs, on_alarm: Bound, at: At, *, in_queue: bool | None
) -> None:
    """As long as one lives; a task that waits where the step is unknown waits in vain."""
    waiting = {"rules": runs.knowing_nothing(), "in_queue": in_queue}

    left = on_alarm(runs.pending(), at(60), known_elsewhere=True, **waiting)
    blocked = on_alarm(runs.pending(), at(60), **waiting)

    assert (left.outcome, left.changed) == (Outcome.STILL_QUEUED, False)
    assert (blocked.outcome, blocked.manifest.block.code) == (Outcome.BLOCKED, "step_unknown")


def test_a_lost_task_of_an_unknown_step_is_replaced_for_the_worker_that_knows_it(
    runs: Runs, on_alarm: Bound, at: At
) -> None:
    """A deploy is no reason to count it as lost: the run would be given up for it."""
    change = on_alarm(runs.pending(), at(60), rules=runs.knowing_nothing(), known_elsewhere=True)

    dispatch = change.manifest.position.dispatch
    assert (change.outcome, dispatch.generation, dispatch.redispatched) == ("redispatched", 2, 0)


def test_an_alarm_of_a_shorter_grace_is_set_anew(
    runs: Runs, rules: Rules, on_alarm: Bound, at: At
) -> None:
    """A deploy gave tasks more time: the one that is on its way is not lost."""
    patient = replace(rules, grace=timedelta(seconds=600))

    change = on_alarm(runs.pending(), at(60), rules=patient)

    assert (change.outcome, change.manifest.alarm_at) == (Outcome.ALARM_SET, at(600))
    assert (change.manifest.position.dispatch.generation, change.events) == (1, ())


def test_a_run_that_cannot_be_is_set_right_in_place_of_failing_the_sweep(
    runs: Runs, on_alarm: Bound, at: At
) -> None:
    """A transition would be impossible: the sweep would stop there, each time."""
    leased = runs.leased()
    run = at_position(replace(runs.pending(), alarm_at=at(30)), lease=leased.position.lease)

    change = on_alarm(run, at(30))

    assert (change.outcome, change.manifest.position.lease) == (Outcome.REPAIRED, None)
    assert change.manifest.alarm_at == at(60)


def test_a_finished_run_with_an_alarm_loses_the_alarm_and_nothing_else(
    runs: Runs, on_alarm: Bound, at: At
) -> None:
    run = replace(runs.archived(runs.completed()), alarm_at=at(60))

    change = on_alarm(run, at(60), rules=runs.knowing_nothing())

    assert (change.outcome, change.manifest.alarm_at) == (Outcome.REPAIRED, None)
    left = {"alarm_at": at(60), "updated_at": run.updated_at, "traced": run.traced}
    assert replace(change.manifest, **left) == run
