"""Runs that break the rule that nothing rests without owner or alarm, and their repair."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import Manifest
from leasehold.domain.slots import SlotWait
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position

Broken = Callable[[Runs, At], Manifest]


def no_lease(runs: Runs, at: At) -> Manifest:
    """Its lease is gone, and with it its alarm."""
    return at_position(replace(runs.leased(), alarm_at=None), lease=None)


def no_lease_but_an_alarm(runs: Runs, at: At) -> Manifest:
    return at_position(runs.leased(), lease=None)


def no_holder(runs: Runs, at: At) -> Manifest:
    run = runs.leased()
    assert run.position.lease is not None
    return at_position(run, lease=replace(run.position.lease, holder=""))


def stray_lease(runs: Runs, at: At) -> Manifest:
    return at_position(runs.pending(), lease=runs.leased().position.lease)


def lease_of_the_dead(runs: Runs, at: At) -> Manifest:
    return at_position(
        replace(runs.dead_lettered(), alarm_at=at(30)), lease=runs.leased().position.lease
    )


def no_alarm(runs: Runs, at: At) -> Manifest:
    return replace(runs.pending(), alarm_at=None)


def no_alarm_while_leased(runs: Runs, at: At) -> Manifest:
    return replace(runs.leased(), alarm_at=None)


def no_alarm_and_nothing_owed(runs: Runs, at: At) -> Manifest:
    run = runs.failed()
    return at_position(
        replace(run, alarm_at=None), dispatch=replace(run.position.dispatch, enqueued=True)
    )


def stray_alarm(runs: Runs, at: At) -> Manifest:
    return replace(runs.blocked(), alarm_at=at(60))


def not_listed(runs: Runs, at: At) -> Manifest:
    return replace(runs.elsewhere().pending(), claimable=None)


def listed(runs: Runs, at: At) -> Manifest:
    return replace(runs.pending(), claimable="draft")


def wrong_shard(runs: Runs, at: At) -> Manifest:
    return replace(runs.pending(), shard=99)


def endless_lease(runs: Runs, at: At) -> Manifest:
    run = runs.leased()
    assert run.position.lease is not None
    endless = replace(run.position.lease, expires_at=at(10**9))
    return at_position(replace(run, alarm_at=at(10**9)), lease=endless)


def endless_wait(runs: Runs, at: At) -> Manifest:
    run = runs.pending()
    seen = replace(run.position.dispatch, seen_at=at(10**9))
    return at_position(replace(run, alarm_at=at(10**9 + 60)), dispatch=seen)


def late_alarm(runs: Runs, at: At) -> Manifest:
    return replace(runs.pending(), alarm_at=at(10**9))


def not_in_line(runs: Runs, at: At) -> Manifest:
    """It waits for a slot, and no worker that frees one finds it."""
    wait = SlotWait(limit="model", key="model", most=2, since=at(0), look_at=at(60))
    return replace(at_position(runs.pending(), slot_wait=wait), alarm_at=at(60))


def stray_line(runs: Runs, at: At) -> Manifest:
    return replace(runs.pending(), waits_in="model at once", line="1||2026")


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (wrong_shard, "wrong_shard"),
        (endless_lease, "endless_lease"),
        (endless_wait, "endless_wait"),
        (late_alarm, "late_alarm"),
    ],
)
def test_what_no_sweep_would_ever_look_at_is_found_and_repaired(
    runs: Runs, rules: Rules, at: At, broken: Broken, code: str
) -> None:
    run = broken(runs, at)

    found = [breach.code for breach in lifecycle.breaches(run, at(90), rules)]
    change = lifecycle.on_audit(run, at(90), rules=rules, generation=1, in_queue=True)

    assert found == [code]
    assert change.changed
    mended = change.manifest
    assert [breach.code for breach in lifecycle.breaches(mended, at(90), rules)] == []
    assert mended.alarm_at is not None
    assert mended.alarm_at <= at(180)


BROKEN: dict[Broken, list[tuple[str, str]]] = {
    no_lease: [
        ("no_lease", "It is IN_PROGRESS, but no worker holds a lease."),
        ("no_alarm", "It is IN_PROGRESS, and has no alarm."),
    ],
    no_lease_but_an_alarm: [("no_lease", "It is IN_PROGRESS, but no worker holds a lease.")],
    no_holder: [("no_holder", "Its lease names no holder.")],
    stray_lease: [("stray_lease", "It is PENDING, and host-a holds a lease.")],
    lease_of_the_dead: [
        ("stray_lease", "It is dead-lettered and ERROR, and host-a holds a lease."),
    ],
    no_alarm: [("no_alarm", "It is PENDING, and owes its task, and has no alarm.")],
    no_alarm_while_leased: [("no_alarm", "It is IN_PROGRESS, and has no alarm.")],
    no_alarm_and_nothing_owed: [("no_alarm", "It is ERROR, and has no alarm.")],
    stray_alarm: [("stray_alarm", "It is BLOCKED and owes nothing, and has an alarm.")],
    not_listed: [
        ("stray_claim", "Step draft waits for a remote worker, and is not listed for them.")
    ],
    not_in_line: [
        ("stray_line", "It waits for a limit, and does not stand in the line 'model at once'.")
    ],
    stray_line: [
        ("stray_line", "It stands in the line 'model at once', and waits for no limit there.")
    ],
    listed: [("stray_claim", "It is listed for remote workers as draft, and waits for none.")],
}


def mended(run: Manifest, runs: Runs, at: At, second: float, *, in_queue: bool = False) -> Change:
    """The result of `leasehold audit --repair` for the run at that second."""
    rules = runs.elsewhere().rules if run.position.dispatch.remote else runs.rules
    generation = run.position.dispatch.generation
    now = at(second)
    return lifecycle.on_audit(run, now, rules=rules, generation=generation, in_queue=in_queue)


@pytest.mark.parametrize(
    "state",
    ["pending", "leased", "failed", "blocked", "unknown", "handed_off", "completed",
     "dead_lettered"],
)  # fmt: skip
@pytest.mark.parametrize("overlay", ["plain", "paused", "cancelled"])
def test_a_run_that_the_engine_wrote_is_in_order(
    runs: Runs, rules: Rules, at: At, state: str, overlay: str
) -> None:
    run = getattr(runs, state)()
    if overlay != "plain" and not run.is_terminal:
        run = getattr(runs, overlay)(run)

    assert list(lifecycle.breaches(run, at(20), rules)) == []
    assert mended(run, runs, at, 20).changed is False


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_what_is_wrong_is_told_in_words(runs: Runs, rules: Rules, at: At, broken: Broken) -> None:
    run = broken(runs, at)

    found = [(one.code, one.finding) for one in lifecycle.breaches(run, at(7), rules)]

    assert found == BROKEN[broken]
    assert all(one.repair for one in lifecycle.breaches(run, at(7), rules))


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
@pytest.mark.parametrize("second", [7, 20, 9000])
def test_a_repaired_run_is_in_order_and_a_second_repair_changes_nothing(
    runs: Runs, rules: Rules, at: At, broken: Broken, second: int
) -> None:
    change = mended(broken(runs, at), runs, at, second)

    assert change.changed
    assert change.events[0].type == "step_recovered"
    assert change.events[0].reason == "repaired"
    assert list(lifecycle.breaches(change.manifest, at(second), rules)) == []
    assert mended(change.manifest, runs, at, second).changed is False


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_repaired_run_completes(runs: Runs, at: At, broken: Broken) -> None:
    """One that is over, or waits for a person or a limit, stays so; all others reach their end."""
    run = mended(broken(runs, at), runs, at, 20).manifest
    if run.is_terminal or run.status is RunStatus.BLOCKED:
        assert broken in (lease_of_the_dead, stray_alarm)
        return
    if run.awaits_slot:  # it is called once there is room
        assert (broken, run.waits_in) == (not_in_line, "model at once")
        return

    second = 20
    for lease in range(3):
        if run.position.lease is None and not run.is_terminal:
            run = runs.leased(run, at=second, lease_id=f"lease-{lease + 5}")
        if run.position.lease is not None:
            run = runs.with_output(run, at=second + 1)
        second += 2

    assert run.status is RunStatus.COMPLETED


@pytest.mark.parametrize("broken", [no_lease, no_lease_but_an_alarm, no_holder])
def test_a_step_without_a_lease_is_dispatched_again(runs: Runs, at: At, broken: Broken) -> None:
    change = mended(broken(runs, at), runs, at, 20)

    run = change.manifest
    assert (change.outcome, run.status, run.position.lease) == (
        Outcome.REDISPATCHED,
        "PENDING",
        None,
    )
    assert (run.steps["draft"].status, run.alarm_at) == ("PENDING", at(80))
    assert [task.generation for task in change.owed] == [2]
    assert (run.position.interruptions, run.position.attempts.ended) == (0, 0)


def test_a_paused_run_without_a_lease_is_not_dispatched(runs: Runs, at: At) -> None:
    run = replace(no_lease(runs, at), paused=True)

    run = mended(run, runs, at, 20).manifest

    assert (run.status, run.paused, run.position.dispatch.generation) == ("PENDING", True, 1)
    assert run.alarm_at is None


def test_an_alarm_is_overdue_after_five_minutes(runs: Runs, rules: Rules, at: At) -> None:
    run = runs.pending()

    assert list(lifecycle.breaches(run, at(360), rules)) == []
    found = list(lifecycle.breaches(run, at(361), rules))
    assert [(one.code, one.finding) for one in found] == [
        ("overdue", "Its alarm was due 301 s ago, and no sweep has attended to it.")
    ]


@pytest.mark.parametrize(
    ("state", "outcome"), [("pending", Outcome.REDISPATCHED), ("leased", Outcome.EXPIRED)]
)
def test_what_the_sweep_should_have_done_is_done(
    runs: Runs, at: At, state: str, outcome: Outcome
) -> None:
    change = mended(getattr(runs, state)(), runs, at, 900)

    assert (change.outcome, change.manifest.alarm_at) == (outcome, at(960))


def test_an_overdue_task_that_waits_in_its_queue_is_left_there(runs: Runs, at: At) -> None:
    change = mended(runs.pending(), runs, at, 900, in_queue=True)

    assert (change.outcome, change.manifest.alarm_at) == (Outcome.STILL_QUEUED, at(960))


def test_a_repair_of_long_ago_does_what_is_due_as_well(runs: Runs, at: At) -> None:
    """The alarm that was missing would be long past: it might never be looked at."""
    change = mended(no_alarm(runs, at), runs, at, 9000)

    assert (change.outcome, change.manifest.alarm_at) == (Outcome.REDISPATCHED, at(9060))
    assert [event.type for event in change.events] == ["step_recovered", "step_redispatched"]
    assert change.manifest.traced == 2


def test_a_repair_tells_what_was_wrong(runs: Runs, at: At) -> None:
    change = mended(no_lease(runs, at), runs, at, 20)

    assert [(event.reason, event.detail) for event in change.events] == [
        (
            "repaired",
            "It is IN_PROGRESS, but no worker holds a lease. It is IN_PROGRESS, and has no alarm.",
        )
    ]
