"""Times that lie ahead of now: a clock that was in 2056 for a moment must not stop a run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules
from leasehold.domain.explanation import explain
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position

#: Thirty years, of which the store's clock was ahead while the run was written.
AHEAD_S = 30 * 365 * 86_400.0

WRITTEN = {
    "pending": lambda runs: runs.pending(),
    "failed": lambda runs: runs.failed(),
    "handed_off": lambda runs: runs.handed_off(),
    "leased": lambda runs: runs.leased(),
    "leased for its whole time": lambda runs: runs.leased(
        runs.handed_off(), at=6, lease_id="lease-2"
    ),
    "elsewhere": lambda runs: runs.elsewhere().pending(),
    "claimed": lambda runs: runs.elsewhere().claimed(),
    "blocked": lambda runs: runs.blocked(),
    "paused": lambda runs: runs.paused(runs.pending()),
    "paused while leased": lambda runs: runs.paused(runs.leased()),
}
STATES = pytest.mark.parametrize("state", WRITTEN)


@pytest.fixture
def ahead(runs: Runs) -> Runs:
    """Runs that were written while the clock was ahead."""
    return Runs(runs.rules, lambda second: runs.at(second + AHEAD_S))


def rules_for(runs: Runs, run: Manifest) -> Rules:
    return runs.elsewhere().rules if run.position.dispatch.remote else runs.rules


def repaired(runs: Runs, run: Manifest, second: float = 100) -> Change:
    rules, generation = rules_for(runs, run), run.position.dispatch.generation
    now = runs.at(second)
    return lifecycle.on_audit(run, now, rules=rules, generation=generation, in_queue=True)


def codes(runs: Runs, run: Manifest, second: float = 100) -> list[str]:
    found = lifecycle.breaches(run, runs.at(second), rules_for(runs, run))
    return [breach.code for breach in found]


@STATES
def test_a_run_that_was_written_in_the_future_is_found_and_repaired_for_good(
    runs: Runs, ahead: Runs, state: str
) -> None:
    run = WRITTEN[state](ahead)
    assert codes(runs, run) == ["time_in_future"]

    change = repaired(runs, run)

    after = change.manifest
    assert change.changed
    assert [(str(event.type), event.reason) for event in change.events] == [
        ("step_recovered", "repaired")
    ]
    assert codes(runs, after) == []
    assert repaired(runs, after).changed is False
    assert after.updated_at == runs.at(100)
    assert (after.alarm_at is None) is (run.alarm_at is None)
    if after.alarm_at is not None:
        assert after.alarm_at <= runs.at(100) + timedelta(minutes=10)


@pytest.mark.parametrize("state", ["pending", "failed", "handed_off", "elsewhere"])
def test_a_step_without_a_lease_is_dispatched_again_from_now(
    runs: Runs, ahead: Runs, state: str
) -> None:
    run = WRITTEN[state](ahead)

    change = repaired(runs, run)

    after = change.manifest
    assert (change.outcome, after.status) == (Outcome.REDISPATCHED, run.status)
    assert after.position.dispatch.generation == run.position.dispatch.generation + 1
    assert after.position.dispatch.not_before == runs.at(100)
    assert after.position.attempts == run.position.attempts


@pytest.mark.parametrize("state", ["leased", "leased for its whole time", "claimed"])
def test_a_worker_that_is_alive_keeps_its_lease(runs: Runs, ahead: Runs, state: str) -> None:
    """Here that is unknown: its lease runs from now on, and time will tell."""
    run = WRITTEN[state](ahead)

    after = repaired(runs, run).manifest

    assert run.position.lease is not None
    assert after.position.lease is not None
    length = run.position.lease.expires_at - run.position.lease.acquired_at
    cap = run.position.lease.max_expires_at - run.position.lease.acquired_at
    assert (after.position.lease.lease_id, after.position.lease.holder) == (
        run.position.lease.lease_id,
        run.position.lease.holder,
    )
    assert after.fencing_token == run.fencing_token
    assert after.position.lease.acquired_at == after.position.heartbeat_at == runs.at(100)
    assert after.position.lease.expires_at == runs.at(100) + length
    assert after.position.lease.max_expires_at == runs.at(100) + cap
    done = lifecycle.release(
        after,
        runs.at(101),
        rules=rules_for(runs, run),
        fence=runs.fence(run),
        reason="instance_shutdown",
    )
    assert done.outcome is Outcome.RELEASED


def test_a_worker_that_is_dead_is_replaced_when_its_lease_is_over(runs: Runs, ahead: Runs) -> None:
    after = repaired(runs, ahead.leased()).manifest

    change = lifecycle.expire(after, runs.at(130), rules=runs.rules, lease_id="lease-1")

    assert (change.outcome, change.manifest.position.attempts.expired) == (Outcome.EXPIRED, 1)


def test_a_lease_of_the_future_is_found_though_its_worker_renews_it_now(
    runs: Runs, ahead: Runs
) -> None:
    """Its end lies in 2056, and the death of its worker would stay unnoticed until then."""
    run = lifecycle.renew(
        ahead.leased(), runs.at(90), rules=runs.rules, fence=runs.fence(ahead.leased())
    ).manifest
    assert run.updated_at == runs.at(90)

    assert codes(runs, run) == ["time_in_future"]
    assert repaired(runs, run).manifest.alarm_at == runs.at(130)


@pytest.mark.parametrize("field", ["not_before", "seen_at"])
def test_a_dispatch_of_the_future_is_found_though_the_run_was_written_since(
    runs: Runs, field: str
) -> None:
    run = runs.pending()
    run = at_position(run, dispatch=replace(run.position.dispatch, **{field: runs.at(AHEAD_S)}))
    run = replace(run, alarm_at=runs.at(AHEAD_S + 60))

    assert codes(runs, run)
    after = repaired(runs, run).manifest
    assert codes(runs, after) == []
    assert after.alarm_at is not None
    assert after.alarm_at <= runs.at(160)


def test_a_resumed_run_goes_on_though_it_was_paused_in_the_future(runs: Runs, ahead: Runs) -> None:
    after = repaired(runs, WRITTEN["paused"](ahead)).manifest

    run = lifecycle.resume(after, runs.at(110), rules=runs.rules, actor="ada", reason="").manifest

    assert codes(runs, run, 111) == []
    assert run.position.dispatch.not_before == runs.at(110)


def test_a_failure_of_the_future_is_one_of_now(runs: Runs, ahead: Runs) -> None:
    """Its recovery window would end in 2056 otherwise."""
    assert repaired(runs, ahead.failed()).manifest.error_at == runs.at(100)


@pytest.mark.parametrize(
    "built", [lambda runs: runs.completed(), lambda runs: runs.dead_lettered()]
)
def test_a_run_that_is_over_is_left_as_it_is(
    runs: Runs, ahead: Runs, built: Callable[[Runs], Manifest]
) -> None:
    """Nothing moves it any more, and nothing may."""
    assert codes(runs, built(ahead)) == []
    assert repaired(runs, built(ahead)).changed is False


@STATES
@pytest.mark.parametrize(("ahead_s", "found"), [(300.0, False), (301.0, True)])
def test_clocks_may_differ_by_five_minutes(
    runs: Runs, state: str, ahead_s: float, found: bool
) -> None:
    run = WRITTEN[state](runs)
    second = (run.updated_at - runs.at(0)).total_seconds() - ahead_s

    assert ("time_in_future" in codes(runs, run, second)) is found


def test_a_long_backoff_is_no_time_of_the_future(runs: Runs, at: At) -> None:
    run = runs.failed()
    later = replace(run.position.dispatch, not_before=at(86_400))

    found = codes(runs, at_position(replace(run, alarm_at=at(86_460)), dispatch=later), 10)

    assert found == []


def test_a_long_wait_for_a_remote_worker_is_none(elsewhere: Runs, at: At) -> None:
    run = elsewhere.pending()
    patient = replace(run.position.dispatch, schedule_to_start_s=30 * 86_400)

    found = codes(
        elsewhere, at_position(replace(run, alarm_at=at(30 * 86_400 / 12)), dispatch=patient), 10
    )

    assert found == []


def test_why_says_that_the_clock_was_wrong(runs: Runs, ahead: Runs, at: At) -> None:
    found = explain(ahead.pending(), at(100), runs.rules)

    assert found.words == (
        "Run r-1 waits for a repair (leasehold audit --repair): It was last written at "
        "2055-12-25T12:00:00+00:00, which is too far ahead of now, 2026-01-01T12:01:40+00:00, "
        "until 2055-12-25T12:01:00Z; if nothing happens by then, its task is looked "
        "for, and if it is lost the step gets a new one."
    )
