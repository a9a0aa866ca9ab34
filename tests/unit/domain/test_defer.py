"""An attempt that meets an outage is put off, and that counts for nothing."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.give_up_rules import verdict_on, verdict_on_wait
from leasehold.domain.lifecycle import breaches
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunStatus, Termination
from leasehold.errors import LeaseLostError
from tests.unit.domain.runs import At, Runs

AWAY = Termination.STORE_UNAVAILABLE


def deferred(runs: Runs, run: Manifest, *, at: float) -> Change:
    return lifecycle.defer(
        run,
        runs.at(at),
        rules=runs.rules,
        fence=runs.fence(run),
        reason=AWAY,
        detail="The store does not answer.",
    )


def test_the_lease_is_released_and_the_next_attempt_waits(runs: Runs, at: At) -> None:
    run = runs.leased()

    change = deferred(runs, run, at=5)

    after = change.manifest
    assert change.outcome is Outcome.RELEASED
    assert after.position.lease is None
    assert (after.status, after.steps["draft"].status) == (RunStatus.PENDING, RunStatus.PENDING)
    assert after.position.dispatch.generation == run.position.dispatch.generation + 1
    assert after.position.dispatch.not_before == at(15)
    assert [task.not_before for task in change.owed] == [at(15)]
    assert list(breaches(after, at(6), runs.rules)) == []


def test_it_is_counted_and_told_and_uses_up_nothing(runs: Runs) -> None:
    run = runs.failed(at=5)
    run = runs.leased(run, at=20, lease_id="lease-2")

    change = deferred(runs, run, at=25)

    after = change.manifest
    assert after.position.attempts.model_dump() == {
        "failed": 1,
        "interrupted": 0,
        "expired": 0,
        "continued": 0,
        "repeated": 0,
        "deferred": 1,
    }
    assert (after.position.interruptions, after.position.attempt) == (0, 3)
    assert [(event.type, event.reason, event.detail) for event in change.events] == [
        ("step_terminated", "store_unavailable", "The store does not answer.")
    ]
    assert change.events[0].attempt == 2


def test_the_wait_grows_with_each_deferral_in_a_row(runs: Runs, at: At) -> None:
    run, waits = runs.leased(), []
    for number in range(8):
        now = number * 1000.0
        after = deferred(runs, run, at=now + 5).manifest
        waits.append((after.position.dispatch.not_before - at(now + 5)).total_seconds())
        run = runs.leased(after, at=now + 1000, lease_id=f"lease-{number + 2}")

    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]


def test_after_another_end_the_wait_begins_anew(runs: Runs, at: At) -> None:
    run = runs.leased(deferred(runs, runs.leased(), at=5).manifest, at=20, lease_id="lease-2")
    run = runs.leased(runs.failed(run, at=25), at=60, lease_id="lease-3")

    assert deferred(runs, run, at=65).manifest.position.dispatch.not_before == at(75)


def test_no_number_of_deferrals_gives_a_run_up(runs: Runs, at: At) -> None:
    """Nor does the time they take, whatever happened before."""
    run = runs.leased(runs.failed(at=5), at=20, lease_id="lease-0")
    now = 20.0
    for number in range(60):
        run = deferred(runs, run, at=now + 5).manifest
        due = run.position.dispatch.not_before
        now = (due - at(0)).total_seconds() + 3600
        for when in (due, due + runs.rules.grace, at(now)):
            assert verdict_on(run, when, runs.rules) is None
            assert verdict_on_wait(run, when, runs.rules) is None
        run = runs.leased(run, at=now, lease_id=f"lease-{number + 1}")

    assert run.status is RunStatus.IN_PROGRESS
    assert run.position.attempts.deferred == 60


def test_a_paused_run_stays_where_it_is(runs: Runs) -> None:
    run = runs.paused(runs.leased())

    change = deferred(runs, run, at=8)

    assert change.outcome is Outcome.RELEASED
    assert change.manifest.position.dispatch.generation == run.position.dispatch.generation
    assert change.manifest.alarm_at is None
    assert change.owed == ()


def test_a_deferral_that_is_told_again_gets_its_first_answer(runs: Runs) -> None:
    run = runs.leased()
    change = deferred(runs, run, at=5)

    again = lifecycle.defer(
        change.manifest,
        runs.at(6),
        rules=runs.rules,
        fence=runs.fence(run),
        reason=AWAY,
        detail="again",
    )

    assert (again.changed, again.outcome) == (False, Outcome.RELEASED)


def test_a_worker_without_the_lease_defers_nothing(runs: Runs, at: At) -> None:
    run = runs.leased()
    taken = runs.leased(run, at=31, lease_id="lease-2")
    defer = partial(
        lifecycle.defer,
        rules=runs.rules,
        fence=runs.fence(run),
        reason=Termination.STORE_UNAVAILABLE,
        detail="away",
    )

    with pytest.raises(LeaseLostError):
        defer(taken, at(32))


def test_an_outage_that_outlasts_the_lease_still_defers_until_a_takeover(runs: Runs) -> None:
    """The store was away when the lease ended; only its holder knows why."""
    run = deferred(runs, runs.leased(), at=31).manifest

    assert (run.status, run.position.interruptions, run.position.attempts.deferred) == (
        "PENDING",
        0,
        1,
    )


# -- claims of remote workers ------------------------------------------------------------------


def test_a_step_that_was_asked_for_in_vain_waits_on(runs: Runs, at: At) -> None:
    remote = runs.elsewhere()
    run = remote.pending()
    wait = timedelta(seconds=run.position.dispatch.schedule_to_start_s or 0)

    change = lifecycle.extend_wait(run, at(100), rules=remote.rules, generation=1)

    assert change.manifest.alarm_at == at(100) + wait
    assert change.events == ()
    assert verdict_on_wait(change.manifest, at(0) + wait, remote.rules) is None
    assert verdict_on_wait(change.manifest, at(100) + wait, remote.rules) is not None
    assert list(breaches(change.manifest, at(101), remote.rules)) == []


@pytest.mark.parametrize("case", ["another generation", "leased", "noted before", "local"])
def test_only_a_step_that_waits_to_be_claimed_waits_on(runs: Runs, at: At, case: str) -> None:
    remote = runs.elsewhere()
    run = remote.pending()
    generation = 1
    if case == "another generation":
        generation = 2
    if case == "leased":
        run = remote.claimed(run)
    if case == "noted before":
        run = lifecycle.extend_wait(run, at(1), rules=remote.rules, generation=1).manifest
    if case == "local":
        run = runs.pending()

    change = lifecycle.extend_wait(run, at(2), rules=remote.rules, generation=generation)

    assert not change.changed
