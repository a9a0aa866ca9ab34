"""A dispatch that nobody took in time."""

from __future__ import annotations

from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.dispatch import Rules
from leasehold.domain.status import Outcome
from tests.unit.domain.runs import At, Bound, Runs


@pytest.fixture
def redispatch(rules: Rules) -> Bound:
    """A sweep that did not find the task of generation 1."""
    return partial(lifecycle.redispatch, rules=rules, generation=1, in_queue=False)


def test_a_task_that_was_lost_is_replaced_by_one_of_the_next_generation(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    """A queue may refuse the name of a task for a day after it had it."""
    change = redispatch(runs.pending(), at(60))

    run = change.manifest
    assert (change.outcome, run.status) == (Outcome.REDISPATCHED, "PENDING")
    assert (run.dispatch.generation, run.dispatch.not_before) == (2, at(60))
    assert run.alarm_at == at(120)
    assert [(task.generation, task.not_before) for task in change.owed] == [(2, at(60))]
    assert [event.type for event in change.events] == ["step_redispatched"]


def test_a_lost_task_costs_no_attempt(runs: Runs, redispatch: Bound, at: At) -> None:
    change = redispatch(runs.failed(), at(75), generation=2)

    assert (change.outcome, change.manifest.status) == (Outcome.REDISPATCHED, "ERROR")
    assert change.manifest.attempts == runs.failed().attempts


@pytest.mark.parametrize("state", ["pending", "failed"])
def test_a_task_of_which_nothing_can_be_known_is_left_to_whoever_has_its_queue(
    runs: Runs, redispatch: Bound, at: At, state: str
) -> None:
    """A command beside a server does not have its queue; by cron it comes each minute.

    The alarm stays due: moved, it would keep the server from looking for a task that is lost.
    """
    run = getattr(runs, state)()

    change = redispatch(run, at(300), generation=run.dispatch.generation, in_queue=None)

    assert (change.outcome, change.changed, change.events) == (Outcome.STILL_QUEUED, False, ())
    assert change.manifest == run


def test_a_step_that_may_be_queued_is_not_blocked_by_a_deploy_that_does_not_know_it(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    change = redispatch(runs.pending(), at(60), rules=runs.knowing_nothing(), in_queue=None)

    assert (change.outcome, change.changed) == (Outcome.STILL_QUEUED, False)


def test_an_error_that_nobody_recovered_from_is_given_up_wherever_its_task_is(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    change = redispatch(runs.failed(), at(4000), generation=2, in_queue=None)

    assert (change.outcome, change.manifest.dead_letter_reason) == (
        Outcome.DEAD_LETTERED,
        "UNRECOVERED_ERROR",
    )


def test_a_task_that_waits_in_a_long_queue_is_left_there(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    """Another one would only make the queue longer; the sweep looks again after the grace."""
    change = redispatch(runs.pending(), at(60), in_queue=True)

    run = change.manifest
    assert (change.outcome, run.dispatch.generation, run.alarm_at) == ("still_queued", 1, at(120))
    assert (run.dispatch.seen_at, change.owed, change.events) == (at(60), (), ())


def test_a_task_that_was_seen_and_then_lost_is_replaced(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    seen = redispatch(runs.pending(), at(60), in_queue=True).manifest

    change = redispatch(seen, at(120))

    assert (change.outcome, change.manifest.dispatch.generation) == (Outcome.REDISPATCHED, 2)
    assert change.manifest.dispatch.seen_at is None


@pytest.mark.parametrize(
    ("state", "second", "generation"),
    [
        ("pending", 59, 1),
        ("handed_off", 65, 1),
        ("leased", 60, 1),
        ("blocked", 60, 1),
        ("completed", 600, 2),
        ("dead_lettered", 600, 1),
    ],
    ids=["not late", "of another generation", "held", "blocked", "completed", "given up"],
)
def test_a_run_that_moved_meanwhile_is_left_alone(
    runs: Runs, redispatch: Bound, at: At, state: str, second: int, generation: int
) -> None:
    """Between what a sweep read and what it does, a worker may have come."""
    run = getattr(runs, state)()

    change = redispatch(run, at(second), generation=generation)

    assert (change.outcome, change.changed, change.manifest) == (Outcome.MOVED_ON, False, run)


def test_a_step_that_the_deploy_does_not_know_blocks_the_run(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    change = redispatch(runs.pending(), at(60), rules=runs.knowing_nothing())

    assert (change.outcome, change.manifest.block.code) == (Outcome.BLOCKED, "UNKNOWN_STEP")
