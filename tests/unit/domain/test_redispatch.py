"""A dispatch that no worker took in time."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import dispatch_task
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Bound, Runs
from tests.worlds.builders import at_position


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
    assert (run.position.dispatch.generation, run.position.dispatch.not_before) == (2, at(60))
    assert run.alarm_at == at(120)
    assert [(task.generation, task.not_before) for task in change.owed] == [(2, at(60))]
    assert [event.type for event in change.events] == ["step_redispatched"]


def test_a_lost_task_costs_no_attempt(runs: Runs, redispatch: Bound, at: At) -> None:
    change = redispatch(runs.failed(), at(75), generation=2)

    assert (change.outcome, change.manifest.status) == (Outcome.REDISPATCHED, "ERROR")
    assert change.manifest.position.attempts == runs.failed().position.attempts


@pytest.mark.parametrize("state", ["pending", "failed"])
def test_a_task_of_which_nothing_can_be_known_is_taken_as_it_is(
    runs: Runs, redispatch: Bound, at: At, state: str
) -> None:
    """It may wait in another process's queue, and that one may be gone. Only one gets the lease.

    A command beside a server has no queue, and by cron it comes each minute. The alarm stays due:
    moved, it would keep the server from looking for a task that is lost.
    """
    run = getattr(runs, state)()
    run = at_position(run, dispatch=replace(run.position.dispatch, enqueued=True))

    change = redispatch(run, at(300), generation=run.position.dispatch.generation, in_queue=None)

    assert (change.outcome, change.changed, change.events) == (Outcome.STILL_QUEUED, False, ())
    assert change.manifest == run
    (task,) = change.owed
    assert (task.name, task.generation) == (
        dispatch_task(run).name,
        run.position.dispatch.generation,
    )


def test_a_step_is_not_blocked_by_a_deploy_that_does_not_know_it_while_a_worker_does(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    nothing = runs.knowing_nothing()

    change = redispatch(runs.pending(), at(60), rules=nothing, in_queue=None, known_elsewhere=True)

    assert (change.outcome, change.changed) == (Outcome.STILL_QUEUED, False)


@pytest.mark.parametrize("in_queue", [True, None])
def test_no_time_gives_a_run_up_whose_task_is_not_known_to_be_lost(
    runs: Runs, redispatch: Bound, at: At, in_queue: bool | None
) -> None:
    change = redispatch(runs.failed(), at(90_000), generation=2, in_queue=in_queue)

    assert change.outcome is Outcome.STILL_QUEUED


# -- what is lost while somebody looks, and while nobody does --------------------------------------


def looks(run: Manifest, rules: Rules, at: At, *seconds: float) -> Manifest:
    """The run after a look at each of these times, none of which finds its task."""
    for second in seconds:
        run = lifecycle.redispatch(
            run,
            at(second),
            rules=rules,
            generation=run.position.dispatch.generation,
            in_queue=False,
        ).manifest
    return run


def test_tasks_that_are_lost_again_and_again_are_counted(runs: Runs, rules: Rules, at: At) -> None:
    """Two may be lost; a look may come ten minutes late, as after a long sweep."""
    twice = looks(runs.pending(), rules, at, 60, 60 + 660)
    given_up = looks(twice, rules, at, 60 + 660 + 660)

    assert (twice.position.dispatch.redispatched, twice.position.dispatch.lost_since) == (2, at(60))
    assert given_up.dead_letter_reason == "NEVER_STARTED"


def test_a_look_after_time_off_begins_the_count_anew(runs: Runs, rules: Rules, at: At) -> None:
    night = 9 * 3600
    twice = looks(runs.pending(), rules, at, 60, 120)

    after = looks(twice, rules, at, night)
    given_up = looks(after, rules, at, night + 60, night + 120, night + 180)

    assert (after.position.dispatch.redispatched, after.position.dispatch.lost_since) == (
        0,
        at(night),
    )
    assert after.position.dispatch.generation == 4, "it gets another task all the same"
    assert given_up.dead_letter_reason == "NEVER_STARTED"


def test_night_after_night_gives_nothing_up(runs: Runs, rules: Rules, at: At) -> None:
    run = looks(runs.failed(), rules, at, *(number * 9 * 3600 for number in range(1, 30)))

    assert (run.status, run.dead_lettered) == ("ERROR", False)


def test_a_failed_run_is_given_up_once_its_tasks_were_lost_for_the_window(
    runs: Runs, rules: Rules, at: At
) -> None:
    """The window is over at second 195: of the time before the first look nothing is known."""
    short = replace(rules, recovery_window=timedelta(seconds=120), max_interruptions=99)

    waits = looks(runs.failed(), short, at, 75, 135)
    given_up = looks(waits, short, at, 195)

    assert (waits.dead_lettered, waits.position.dispatch.lost_since) == (False, at(75))
    assert given_up.dead_letter_reason == "UNRECOVERED_ERROR"


def test_a_loss_that_is_taken_back_is_taken_back_once(runs: Runs, rules: Rules, at: At) -> None:
    """The queue was away, and the answer of the store to the first time was lost."""
    lost = looks(runs.pending(), rules, at, 60)
    take_back = partial(lifecycle.not_created, rules=rules, generation=2, lost=0)

    first = take_back(lost, at(61))
    again = take_back(first.manifest, at(62))

    assert (first.outcome, first.manifest.position.dispatch.redispatched) == ("uncounted", 0)
    assert (again.outcome, again.changed) == ("moved_on", False)


def test_a_task_that_is_in_its_queue_ends_the_time_in_which_it_is_lost(
    runs: Runs, redispatch: Bound, rules: Rules, at: At
) -> None:
    run = looks(runs.failed(), rules, at, 75)

    run = redispatch(run, at(135), generation=3, in_queue=True).manifest

    assert run.position.dispatch.lost_since is None


def test_losses_that_a_version_before_counted_go_on(runs: Runs, rules: Rules, at: At) -> None:
    run = runs.pending()
    run = at_position(run, dispatch=replace(run.position.dispatch, redispatched=2))

    assert looks(run, rules, at, 60).dead_letter_reason == "NEVER_STARTED"


def test_a_remote_step_is_looked_at_while_it_waits(elsewhere: Runs, at: At) -> None:
    """Each look but the last writes; twelve of them at most, ten minutes apart at least."""
    hour = waiting_for(elsewhere, 3600)
    day = waiting_for(elsewhere, 24 * 3600)

    assert [second for second, _ in hour] == [600, 1200, 1800, 2400, 3000, 3600]
    assert [second for second, _ in day] == [7200 * number for number in range(1, 13)]
    assert [run.dead_letter_reason for _, run in hour] == [None] * 5 + ["NEVER_STARTED"]
    assert {run.position.dispatch.generation for _, run in hour} == {1}


@pytest.mark.parametrize("away", [601, 3 * 3600, 90 * 86_400])
def test_a_remote_step_waits_anew_after_time_off(elsewhere: Runs, at: At, away: float) -> None:
    patient = patiently(elsewhere, 3600)

    run = looks(patient.pending(), patient.rules, at, 600, 1200, 1800 + away)
    back = 1800 + away

    assert (run.dead_lettered, run.claimable) == (False, "draft")
    assert (run.position.dispatch.claim_by, run.alarm_at) == (at(back + 3600), at(back + 600))


def patiently(elsewhere: Runs, wait_s: float) -> Runs:
    """The runs whose step draft may wait so long to be claimed."""
    wait = timedelta(seconds=wait_s)
    draft = replace(elsewhere.rules.known_settings("draft"), schedule_to_start=wait)
    return replace(elsewhere, rules=replace(elsewhere.rules, settings_for={"draft": draft}.get))


def waiting_for(elsewhere: Runs, wait_s: float) -> list[tuple[float, Manifest]]:
    """The looks at a step without a claim: their times, and the run after each."""
    patient = patiently(elsewhere, wait_s)
    run, seen = patient.pending(), []
    while run.alarm_at is not None and not run.is_terminal:
        second = (run.alarm_at - patient.at(0)).total_seconds()
        run = looks(run, patient.rules, patient.at, second)
        seen.append((second, run))
    return seen


def test_a_task_that_waits_in_a_long_queue_is_left_there(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    """Another one would only make the queue longer; the sweep looks again after the grace."""
    change = redispatch(runs.pending(), at(60), in_queue=True)

    run = change.manifest
    assert (change.outcome, run.position.dispatch.generation, run.alarm_at) == (
        "still_queued",
        1,
        at(120),
    )
    assert (run.position.dispatch.seen_at, change.owed, change.events) == (at(60), (), ())


def test_a_task_that_was_seen_and_then_lost_is_replaced(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    seen = redispatch(runs.pending(), at(60), in_queue=True).manifest

    change = redispatch(seen, at(120))

    assert (change.outcome, change.manifest.position.dispatch.generation) == (
        Outcome.REDISPATCHED,
        2,
    )
    assert change.manifest.position.dispatch.seen_at is None


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

    assert (change.outcome, change.manifest.block.code) == (Outcome.BLOCKED, "step_unknown")
