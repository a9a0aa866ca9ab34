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
    assert [told.type for told in change.events] == ["step_redispatched"]


def test_a_lost_task_costs_no_attempt(runs: Runs, redispatch: Bound, at: At) -> None:
    change = redispatch(runs.failed(), at(75), generation=2)

    assert (change.outcome, change.manifest.status) == (Outcome.REDISPATCHED, "ERROR")
    assert change.manifest.attempts == runs.failed().attempts


def test_a_task_that_could_not_be_looked_for_does_not_count_as_lost(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    """A command beside a server does not have its queue: it must not give a healthy run up."""
    run = runs.pending()
    for turn in range(1, 9):
        due = at(60 * turn)
        run = redispatch(run, due, generation=run.dispatch.generation, in_queue=None).manifest

    assert (run.dead_lettered, run.dispatch.redispatched) == (False, 0)
    assert run.dispatch.generation == 9


def test_a_task_that_waits_in_a_long_queue_is_left_there(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    """Another one would only make the queue longer; the sweep looks again after the grace."""
    change = redispatch(runs.pending(), at(60), in_queue=True)

    run = change.manifest
    assert (change.outcome, run.dispatch.generation, run.alarm_at) == ("parked", 1, at(120))
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

    assert (change.outcome, change.changed, change.manifest) == (Outcome.DUPLICATE, False, run)


def test_a_step_that_the_deploy_does_not_know_blocks_the_run(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    change = redispatch(runs.pending(), at(60), rules=runs.knowing_nothing())

    assert (change.outcome, change.manifest.block.code) == (Outcome.BLOCKED, "UNKNOWN_STEP")
