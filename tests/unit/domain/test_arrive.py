"""A hint arrives: it gets the lease, or the reason why not."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.lease import Fence
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.notes import Notes
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.step_pause import PAUSE_OF_ALL, StepPause, pause_id
from leasehold.domain.stored import replace
from leasehold.errors import LeaseLostError
from tests.unit.domain.runs import At, Bound, Runs
from tests.worlds.builders import at_position

#: What a person wants not to begin.
PAUSE = StepPause(id=pause_id("draft"), why="the provider is down", set_by="ada")


@pytest.fixture
def arrive(runs: Runs) -> Bound:
    """A hint for generation 1 that would become lease-9 of host-b."""
    return partial(
        lifecycle.arrive, rules=runs.rules, generation=1, lease_id="lease-9", holder="host-b"
    )


def test_the_bearer_of_a_current_hint_gets_the_lease(runs: Runs, arrive: Bound, at: At) -> None:
    change = arrive(runs.pending(), at(3))

    run = change.manifest
    assert change.outcome is Outcome.ACQUIRED
    assert (run.status, run.fencing_token) == ("IN_PROGRESS", 1)
    assert (run.position.lease.lease_id, run.position.lease.holder) == ("lease-9", "host-b")
    assert (run.position.heartbeat_at, run.position.step_started_at, run.alarm_at) == (
        at(3),
        at(3),
        at(33),
    )
    assert run.position.dispatch.enqueued
    assert run.steps["draft"].status is RunStatus.IN_PROGRESS
    assert run.steps["draft"].started_at == at(3)
    assert (change.owed, change.events) == ((), ())


@pytest.mark.parametrize(
    ("state", "generation", "outcome"),
    [
        ("pending", 2, Outcome.REJECTED),
        ("handed_off", 1, Outcome.STALE),
        ("leased", 1, Outcome.LEASE_HELD),
        ("failed", 2, Outcome.RETRY_SCHEDULED),
        ("blocked", 1, Outcome.STALE),  # of the attempt that was blocked
        ("blocked", 2, Outcome.BLOCKED),
        ("completed", 2, Outcome.ALREADY_COMPLETED),
        ("completed", 1, Outcome.ALREADY_COMPLETED),
        ("dead_lettered", 1, Outcome.DEAD_LETTERED),
    ],
)
def test_a_hint_that_cannot_have_the_lease_hears_why_and_changes_nothing(
    runs: Runs, arrive: Bound, at: At, state: str, generation: int, outcome: Outcome
) -> None:
    run = getattr(runs, state)()

    change = arrive(run, at(6), generation=generation)

    assert (change.outcome, change.manifest, change.changed) == (outcome, run, False)


@pytest.mark.parametrize("state", ["pending", "failed", "blocked"])
def test_a_paused_run_is_parked_for_every_hint(
    runs: Runs, arrive: Bound, at: At, state: str
) -> None:
    run = runs.paused(getattr(runs, state)())

    change = arrive(run, at(100), generation=run.position.dispatch.generation)

    assert (change.outcome, change.changed, change.owed) == (Outcome.PARKED, False, ())


def test_a_cancelled_run_answers_cancelled_to_old_hints_too(
    runs: Runs, arrive: Bound, at: At
) -> None:
    change = arrive(runs.cancelled(runs.handed_off()), at(9))

    assert (change.outcome, change.changed) == (Outcome.CANCELLED, False)


def test_an_old_hint_finishes_what_the_run_owes(runs: Runs, arrive: Bound, at: At) -> None:
    """The commit of a hand-off may stand although its worker died before the task was there."""
    change = arrive(runs.handed_off(), at(6))

    assert change.outcome is Outcome.STALE
    assert [task.generation for task in change.owed] == [2]


def test_a_hint_for_a_run_that_is_held_asks_to_be_woken(runs: Runs, arrive: Bound, at: At) -> None:
    """The wake task is the only sign of life should that worker die."""
    change = arrive(runs.leased(), at(29))

    assert change.outcome is Outcome.LEASE_HELD
    assert [(task.generation, task.not_before) for task in change.owed] == [(1, at(32))]


@pytest.mark.parametrize(
    ("second", "outcome"), [(12.9, Outcome.RETRY_SCHEDULED), (13, Outcome.ACQUIRED)]
)
def test_a_hint_may_be_two_seconds_early(
    runs: Runs, arrive: Bound, at: At, second: float, outcome: Outcome
) -> None:
    """The clocks of a queue and a store differ a little; the backoff ends at second 15."""
    change = arrive(runs.failed(), at(second), generation=2)

    assert change.outcome is outcome


def test_a_lease_that_is_over_passes_on_with_a_higher_token(
    runs: Runs, arrive: Bound, at: At
) -> None:
    """The token tells what the first worker still writes from what the second one writes."""
    change = arrive(runs.leased(), at(30))

    run = change.manifest
    assert change.outcome is Outcome.ACQUIRED
    assert (run.position.lease.lease_id, run.fencing_token) == ("lease-9", 2)
    assert (
        run.position.dispatch.generation,
        run.position.attempts.expired,
        run.position.attempt,
    ) == (1, 1, 2)
    assert run.steps["draft"].attempts.expired == 1
    assert run.steps["draft"].started_at == at(0)
    (event,) = change.events
    assert event.model_dump(exclude_none=True) == {
        "type": "step_terminated",
        "at": at(30),
        "step": "draft",
        "trial": 1,
        "attempt": 1,
        "reason": "lease_expired",
        "detail": "The lease ran out at 2026-01-01T12:00:30Z: host-a was last heard of at "
        "2026-01-01T12:00:00Z.",
        "holder": "host-a",
        "lastHeartbeatAt": at(0),
        "leaseExpiresAt": at(30),
    }


def test_one_expiry_too_many_gives_the_run_up(runs: Runs, arrive: Bound, at: At) -> None:
    run = runs.leased()
    run = at_position(run, interruptions=2)

    change = arrive(run, at(30))

    assert change.outcome is Outcome.DEAD_LETTERED
    assert change.manifest.dead_letter_reason == "STUCK_IN_PROGRESS"
    assert change.manifest.dead_letter_detail == (
        "Step draft was interrupted or lost its lease 3 times without progress; "
        "PIPELINE_MAX_INTERRUPTIONS allows 2."
    )
    assert [event.type for event in change.events] == ["step_terminated", "step_dead_lettered"]


def test_the_expired_attempt_of_a_paused_run_ends_and_nothing_is_dispatched(
    runs: Runs, arrive: Bound, at: At
) -> None:
    change = arrive(runs.paused(runs.leased()), at(30))

    run = change.manifest
    assert change.outcome is Outcome.PARKED
    assert (run.status, run.paused, run.position.lease, run.alarm_at) == (
        "PENDING",
        True,
        None,
        None,
    )
    assert (run.position.dispatch.generation, change.owed) == (1, ())


def test_the_expired_attempt_of_a_paused_step_ends_and_no_other_begins(
    runs: Runs, arrive: Bound, at: At
) -> None:
    change = arrive(runs.leased(), at(30), rules=with_pauses(runs, PAUSE))

    assert (change.outcome, change.manifest.position.lease) == (Outcome.RETRY_SCHEDULED, None)


def test_a_paused_step_gives_no_run_up_for_its_age(runs: Runs, arrive: Bound, at: At) -> None:
    """Its time to recover is an hour, and the pause may be of a weekend."""
    rules = with_pauses(runs, PAUSE)

    change = arrive(runs.failed(), at(2 * 86_400), generation=2, rules=rules)

    assert (change.outcome, change.manifest.is_terminal) == (Outcome.PARKED, False)


def test_a_run_that_is_held_is_written_anew_only_by_another_pause(
    runs: Runs, arrive: Bound, at: At
) -> None:
    """The end of a pause lets go the runs that name it; all of them say since when."""
    of_step, of_all = with_pauses(runs, PAUSE), with_pauses(runs, StepPause(id=PAUSE_OF_ALL))
    pending = runs.pending()
    lost = replace(pending.position.dispatch, redispatched=2, lost_since=at(0))
    held = arrive(at_position(pending, dispatch=lost), at(1), rules=of_step).manifest

    again = arrive(held, at(2), rules=of_step)
    other = arrive(held, at(3), rules=of_all)

    assert (again.outcome, again.changed) == (Outcome.PARKED, False)
    kept = held.position.dispatch
    assert (kept.redispatched, kept.lost_since) == (0, None)
    holds = other.manifest.position.dispatch.held
    assert (holds.pause, holds.since) == (PAUSE_OF_ALL, at(1))
    assert lifecycle.release_hold(held, at(4), rules=runs.rules, pause=PAUSE.id).changed
    assert not lifecycle.release_hold(held, at(4), rules=runs.rules, pause=PAUSE_OF_ALL).changed


def with_pauses(runs: Runs, *pauses: StepPause) -> Rules:
    return replace(runs.rules, pauses={one.id: one for one in pauses})


def test_a_step_that_the_deploy_does_not_know_is_left_to_those_who_do(
    runs: Runs, arrive: Bound, at: At
) -> None:
    """In the middle of a rollout the next worker may know it; this one does not keep its task."""
    change = arrive(runs.pending(), at(1), rules=runs.knowing_nothing())

    assert (change.outcome, change.changed, change.owed) == (Outcome.STEP_UNKNOWN, False, ())


def test_an_expired_attempt_of_an_unknown_step_ends_and_the_step_is_left_to_those_who_know_it(
    runs: Runs, arrive: Bound, at: At
) -> None:
    before = runs.leased()

    change = arrive(before, at(30), rules=runs.knowing_nothing())

    run = change.manifest
    assert (change.outcome, run.status, run.position.lease) == (
        Outcome.RETRY_SCHEDULED,
        "PENDING",
        None,
    )
    assert run.position.attempts.expired == 1
    assert run.position.dispatch.timeout_ms == before.position.dispatch.timeout_ms
    assert not run.position.dispatch.provisional, "its settings are its own"
    assert [event.type for event in change.events] == ["step_terminated"]


def test_who_knows_the_step_gives_it_its_own_settings_before_it_takes_the_lease(
    runs: Runs, arrive: Bound, at: At
) -> None:
    """It came from a worker that did not know it: with limits and a queue of the step before."""
    leased = runs.leased()
    output, fence = KeptValue(text='"Dear Ada"'), runs.fence(leased)
    handed_off = lifecycle.complete(
        leased, at(5), rules=runs.knowing_nothing(), fence=fence, output=output
    )

    change = arrive(handed_off.manifest, at(6), generation=2)
    acquired = arrive(change.manifest, at(7), generation=3)

    before, dispatch = handed_off.manifest.position.dispatch, change.manifest.position.dispatch
    assert (before.step, before.queue, before.provisional) == ("send", "draft", True)
    assert (dispatch.step, dispatch.queue, dispatch.provisional) == ("send", "mail", False)
    assert (change.outcome, [task.queue for task in change.owed]) == ("redispatched", ["mail"])
    assert [event.type for event in change.events] == ["step_redispatched"]
    assert acquired.outcome is Outcome.ACQUIRED


def test_a_renewed_lease_runs_on_from_now_and_notes_the_progress(
    runs: Runs, rules: Rules, at: At
) -> None:
    progress = Progress(fraction=0.5, message="page 3")

    change = lifecycle.renew(
        runs.leased(), at(20), rules=rules, fence=Fence("lease-1", 1), notes=Notes(progress)
    )

    run = change.manifest
    assert change.outcome is Outcome.RENEWED
    assert (run.position.lease.expires_at, run.alarm_at, run.position.heartbeat_at) == (
        at(50),
        at(50),
        at(20),
    )
    assert run.steps["draft"].progress == progress


def test_a_lease_is_renewed_at_most_to_its_cap(runs: Runs, rules: Rules, at: At) -> None:
    """Whatever PIPELINE_LEASE_TTL_S says."""
    long_leases = replace(rules, lease_ttl=timedelta(minutes=10))

    change = lifecycle.renew(runs.leased(), at(20), rules=long_leases, fence=Fence("lease-1", 1))

    assert change.manifest.position.lease.expires_at == at(480)


def test_a_renewal_never_makes_a_lease_shorter(runs: Runs, rules: Rules, at: At) -> None:
    """A step without heartbeat has its whole time from the start."""
    run = runs.leased(runs.handed_off(), at=5)

    change = lifecycle.renew(run, at(6), rules=rules, fence=Fence("lease-1", 2))

    assert change.manifest.position.lease.expires_at == at(5 + 20 + 300)


def test_a_lease_that_is_over_is_not_renewed(runs: Runs, rules: Rules, at: At) -> None:
    with pytest.raises(LeaseLostError):
        lifecycle.renew(runs.leased(), at(30), rules=rules, fence=Fence("lease-1", 1))


def test_a_lease_whose_answer_was_lost_is_had_although_the_run_was_paused_since(
    runs: Runs, arrive: Bound, at: At
) -> None:
    """No other worker knows it: the run would wait for its end, 7 minutes without a heartbeat."""
    got = arrive(runs.pending(), at(3)).manifest
    paused = lifecycle.pause(got, at(4), rules=runs.rules, actor="ada", reason="").manifest

    again = arrive(paused, at(5))

    assert (again.outcome, again.changed, again.events) == (Outcome.ACQUIRED, True, ())
    assert (again.manifest.position.lease, again.manifest.fencing_token) == (got.position.lease, 1)
    assert arrive(paused, at(33)).outcome is Outcome.PARKED  # it is over by then


def test_a_run_that_a_deploy_allows_no_further_attempt_is_given_up_in_place_of_a_lease(
    runs: Runs, arrive: Bound, at: At
) -> None:
    """The bound was lowered while the task was on its way."""
    change = arrive(at_position(runs.pending(), interruptions=3), at(1))

    assert (change.outcome, change.manifest.position.lease) == (Outcome.DEAD_LETTERED, None)
    assert change.manifest.dead_letter_reason == "STUCK_IN_PROGRESS"
