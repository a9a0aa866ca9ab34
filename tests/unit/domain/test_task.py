"""Tasks: their names tell what is the same."""

from __future__ import annotations

from datetime import timedelta

from leasehold.domain.effect import Task, dispatch_task, wake_task
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position


def test_the_task_of_a_dispatch_says_where_when_and_how_long(runs: Runs, at: At) -> None:
    task = dispatch_task(runs.handed_off())

    assert task == Task(
        name="c4d627c89016cb056741ff80fe7d2543e21b0fa6",
        queue="mail",
        run_id="r-1",
        generation=2,
        not_before=at(5),
        deadline=timedelta(seconds=20),
    )


def test_the_same_dispatch_always_has_the_same_task(runs: Runs) -> None:
    """So any process can announce it, and the queue keeps one."""
    before, after = runs.pending(), runs.paused(runs.pending())

    assert dispatch_task(before) == dispatch_task(after)


def test_each_generation_run_and_nonce_has_its_own_task(runs: Runs) -> None:
    """A queue refuses a name for a while after its task is gone; the nonce tells new runs apart."""
    run = runs.pending()
    others = [
        at_position(run, dispatch=replace(run.position.dispatch, generation=2)),
        at_position(run, dispatch=replace(run.position.dispatch, nonce="nonce-2")),
        replace(run, run_id="r-2"),
    ]

    names = {dispatch_task(one).name for one in [run, *others]}

    assert len(names) == 4


def test_a_wake_task_comes_two_seconds_after_the_lease_must_be_over(runs: Runs, at: At) -> None:
    run = runs.leased()

    task = wake_task(run, run.position.lease)

    assert (task.not_before, task.generation) == (at(32), 1)


def test_each_end_of_a_lease_has_one_wake_task(runs: Runs, at: At) -> None:
    """All who find the run leased ask for the same one; a renewed lease needs another."""
    run = runs.leased()
    renewed = replace(run.position.lease, expires_at=at(40))

    assert wake_task(run, run.position.lease) == wake_task(run, run.position.lease)
    assert wake_task(run, run.position.lease).name != wake_task(run, renewed).name
    assert wake_task(run, run.position.lease).name != dispatch_task(run).name
