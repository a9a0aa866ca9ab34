"""Steps that workers elsewhere claim: how they are found, and the end without a claim."""

from __future__ import annotations

from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.lease import Fence
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from leasehold.errors import LeaseLostError
from tests.unit.domain.runs import At, Bound, Runs
from tests.worlds.builders import at_position


@pytest.fixture
def arrive(elsewhere: Runs) -> Bound:
    """A hint for generation 1 that would become lease-9 of host-b."""
    return partial(
        lifecycle.arrive, rules=elsewhere.rules, generation=1, lease_id="lease-9", holder="host-b"
    )


@pytest.fixture
def redispatch(elsewhere: Runs) -> Bound:
    """A sweep that found no task of generation 1: there never is one."""
    return partial(lifecycle.redispatch, rules=elsewhere.rules, generation=1, in_queue=False)


# -- which steps can be claimed ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "claimable"),
    [
        ("pending", "draft"),
        ("failed", "draft"),
        ("leased", None),
        ("blocked", None),
        ("handed_off", None),
        ("completed", None),
        ("dead_lettered", None),
    ],
)
def test_a_run_is_offered_while_its_step_waits_for_a_worker_elsewhere(
    elsewhere: Runs, state: str, claimable: str | None
) -> None:
    """A failed one too, before its backoff is over; the step after it runs here."""
    run = getattr(elsewhere, state)()

    assert run.claimable == claimable


@pytest.mark.parametrize("state", ["pending", "failed", "leased"])
@pytest.mark.parametrize("overlay", ["paused", "cancelled"])
def test_a_run_that_a_person_holds_or_ended_is_not_offered(
    elsewhere: Runs, state: str, overlay: str
) -> None:
    run = getattr(elsewhere, overlay)(getattr(elsewhere, state)())

    assert run.claimable is None


@pytest.mark.parametrize("state", ["pending", "failed", "leased", "handed_off", "blocked"])
def test_a_step_that_runs_here_is_never_offered(runs: Runs, state: str) -> None:
    assert getattr(runs, state)().claimable is None


def test_a_resumed_run_is_offered_again(elsewhere: Runs, at: At) -> None:
    run = elsewhere.paused(elsewhere.pending())

    run = lifecycle.resume(run, at(8), rules=elsewhere.rules, actor="ada", reason="").manifest

    assert (run.claimable, run.position.dispatch.generation, run.alarm_at) == ("draft", 2, at(608))


def test_no_task_announces_a_step_that_a_worker_elsewhere_claims(elsewhere: Runs, at: At) -> None:
    change = lifecycle.start(None, at(0), rules=elsewhere.rules, new=elsewhere.new())

    run = change.manifest
    assert (run.claimable, change.owed) == ("draft", ())
    assert (run.position.dispatch.remote, run.position.dispatch.schedule_to_start_s) == (True, 600)


# -- nobody comes --------------------------------------------------------------------------------


def test_a_step_may_wait_for_a_worker_as_long_as_its_entry_says(elsewhere: Runs, at: At) -> None:
    """Workers elsewhere come and go; a grace of 60 s would be no time at all."""
    assert elsewhere.pending().alarm_at == at(600)


def test_the_wait_begins_when_the_next_attempt_is_due(elsewhere: Runs, at: At) -> None:
    assert elsewhere.failed().alarm_at == at(5 + 10 + 600)


def test_a_claimed_step_is_looked_at_when_its_lease_ends(elsewhere: Runs, at: At) -> None:
    assert elsewhere.claimed().alarm_at == at(30)


def test_a_step_that_no_worker_claimed_in_time_is_given_up(
    elsewhere: Runs, redispatch: Bound, at: At
) -> None:
    change = redispatch(elsewhere.pending(), at(600))

    run = change.manifest
    assert (change.outcome, run.dead_lettered, run.status) == ("dead_lettered", True, "ERROR")
    assert run.dead_letter_reason == "NEVER_STARTED"
    assert run.dead_letter_detail == "No worker claimed step draft within 600 s."
    assert (run.claimable, run.position.dispatch.generation) == (None, 1)
    assert run.alarm_at == at(600 + 60), "it is archived by then"
    assert [event.type for event in change.events] == ["step_dead_lettered"]


def test_a_step_that_is_still_waiting_in_time_is_left_alone(
    elsewhere: Runs, redispatch: Bound, at: At
) -> None:
    run = elsewhere.pending()

    change = redispatch(run, at(599.999))

    assert (change.outcome, change.changed, change.manifest) == (Outcome.MOVED_ON, False, run)


def test_a_step_that_a_deploy_made_its_own_meanwhile_gets_a_task(
    elsewhere: Runs, runs: Runs, redispatch: Bound, at: At
) -> None:
    """The wait is over, but a worker is there now."""
    change = redispatch(elsewhere.pending(), at(600), rules=runs.rules)

    run = change.manifest
    assert (change.outcome, run.status, run.claimable) == ("redispatched", "PENDING", None)
    assert (run.position.dispatch.remote, run.position.dispatch.schedule_to_start_s) == (
        False,
        None,
    )
    assert [(task.generation, task.not_before) for task in change.owed] == [(2, at(600))]
    assert run.alarm_at == at(660)


def test_a_step_that_a_deploy_gave_away_is_offered_when_its_task_is_lost(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    change = redispatch(runs.pending(), at(60))

    run = change.manifest
    assert (change.outcome, run.claimable, change.owed) == ("redispatched", "draft", ())
    assert (run.position.dispatch.generation, run.alarm_at) == (2, at(660))


def test_a_step_that_a_deploy_gave_away_is_offered_though_its_task_still_waits(
    runs: Runs, redispatch: Bound, at: At
) -> None:
    """Its queue may be paused for good: no worker here has the handler any more."""
    change = redispatch(runs.pending(), at(60), in_queue=True)

    run = change.manifest
    assert (change.outcome, run.claimable, change.owed) == ("redispatched", "draft", ())
    assert run.position.dispatch.redispatched == 0


def test_a_step_that_a_deploy_took_back_is_not_given_up_by_a_late_claim(
    elsewhere: Runs, runs: Runs, at: At
) -> None:
    """The sweep would dispatch it here; a worker that names it first may have it."""
    change = lifecycle.claim(
        elsewhere.pending(), at(601), rules=runs.rules, lease_id="lease-9", holder="vm-1"
    )

    assert change.outcome is Outcome.ACQUIRED


def test_a_step_that_the_deploy_does_not_know_blocks_the_run_in_place_of_giving_it_up(
    elsewhere: Runs, redispatch: Bound, at: At
) -> None:
    change = redispatch(elsewhere.pending(), at(600), rules=elsewhere.knowing_nothing())

    run = change.manifest
    assert (change.outcome, run.block.code) == (Outcome.BLOCKED, "step_unknown")
    assert (run.alarm_at, run.claimable) == (at(610), None)


def test_a_step_that_was_parked_before_steps_could_be_claimed_is_offered_now(
    elsewhere: Runs, redispatch: Bound, at: At
) -> None:
    """An earlier version let it wait for good, and noted no time by which it must be claimed."""
    run = elsewhere.pending()
    dispatch = replace(run.position.dispatch, schedule_to_start_s=None)
    run = at_position(replace(run, claimable=None, alarm_at=at(60)), dispatch=dispatch)

    change = redispatch(run, at(60))

    assert (change.outcome, change.manifest.claimable) == (Outcome.REDISPATCHED, "draft")
    assert (change.manifest.alarm_at, change.owed) == (at(660), ())


# -- hints that come all the same ----------------------------------------------------------------


@pytest.mark.parametrize("state", ["pending", "failed"])
def test_a_hint_for_a_step_that_a_deploy_gave_away_offers_it_to_workers_elsewhere(
    runs: Runs, arrive: Bound, at: At, state: str
) -> None:
    """It has no handler here any more: to run it would fail for good."""
    run = getattr(runs, state)()

    change = arrive(run, at(20), generation=run.position.dispatch.generation)

    after = change.manifest
    assert (change.outcome, after.status, after.position.lease) == (
        "awaits_claim",
        run.status,
        None,
    )
    assert (after.claimable, after.position.dispatch.remote, change.owed) == ("draft", True, ())
    assert after.position.dispatch.generation == run.position.dispatch.generation + 1
    assert (after.alarm_at, after.position.attempts) == (at(620), run.position.attempts)
    assert [(event.type, event.detail) for event in change.events] == [
        ("step_redispatched", "The step is remote by now: a worker has to claim it.")
    ]


def test_a_hint_for_a_step_that_a_deploy_gave_away_gives_no_run_up(
    runs: Runs, arrive: Bound, at: At
) -> None:
    """Its queue was away for longer than the recovery window; now another process can do it."""
    change = arrive(runs.failed(), at(9000), generation=2)

    assert change.outcome is Outcome.AWAITS_CLAIM


def test_a_hint_that_ends_an_expired_lease_offers_a_step_that_a_deploy_gave_away(
    runs: Runs, arrive: Bound, at: At
) -> None:
    change = arrive(runs.leased(), at(30))

    run = change.manifest
    assert (change.outcome, run.position.lease, run.claimable) == ("awaits_claim", None, "draft")
    assert (run.position.attempts.expired, run.position.dispatch.generation) == (1, 2)


def test_a_hint_never_gets_a_step_that_a_worker_elsewhere_claims(
    elsewhere: Runs, arrive: Bound, at: At
) -> None:
    change = arrive(elsewhere.pending(), at(1))

    assert (change.outcome, change.changed, change.owed) == (Outcome.AWAITS_CLAIM, False, ())


def test_a_hint_for_a_step_that_was_claimed_asks_to_be_woken(
    elsewhere: Runs, arrive: Bound, at: At
) -> None:
    change = arrive(elsewhere.claimed(), at(29))

    assert (change.outcome, change.changed) == (Outcome.LEASE_HELD, False)
    assert [(task.generation, task.not_before) for task in change.owed] == [(1, at(32))]


def test_a_hint_ends_the_expired_lease_of_a_worker_elsewhere_and_offers_the_step_again(
    elsewhere: Runs, arrive: Bound, at: At
) -> None:
    """It must not take it over: the handler is not here."""
    change = arrive(elsewhere.claimed(), at(30))

    run = change.manifest
    assert (change.outcome, run.status, run.position.lease) == ("awaits_claim", "PENDING", None)
    assert (run.claimable, run.position.dispatch.generation, run.alarm_at) == ("draft", 2, at(630))
    assert (run.position.attempts.expired, run.position.interruptions, change.owed) == (1, 1, ())
    assert [(event.type, event.model_dump().get("holder")) for event in change.events] == [
        ("step_terminated", "laptop")
    ]


def test_a_hint_that_finds_one_expiry_too_many_gives_the_run_up(
    elsewhere: Runs, arrive: Bound, at: At
) -> None:
    change = arrive(at_position(elsewhere.claimed(), interruptions=2), at(30))

    assert change.outcome is Outcome.DEAD_LETTERED
    assert change.manifest.dead_letter_reason == "STUCK_IN_PROGRESS"


def test_the_worker_that_starts_a_run_does_not_take_a_step_that_is_claimed_elsewhere(
    elsewhere: Runs, at: At
) -> None:
    begin = partial(lifecycle.start, rules=elsewhere.rules, new=elsewhere.new())
    eagerly = lifecycle.then_arrive(
        begin, rules=elsewhere.rules, lease_id="lease-9", holder="host-b"
    )

    change = eagerly(None, at(0))

    assert (change.outcome, change.manifest.position.lease) == (Outcome.STARTED, None)
    assert (change.manifest.claimable, change.owed) == ("draft", ())


# -- an expired lease of a worker elsewhere is over for it too -----------------------------------


@pytest.mark.parametrize("name", ["renew", "complete"])
def test_a_worker_that_comes_back_late_hears_what_became_of_its_lease(
    elsewhere: Runs, at: At, name: str
) -> None:
    run = elsewhere.claimed(elsewhere.claimed(), at=30, lease_id="lease-2")
    facts = {"output": KeptValue(text="1")} if name == "complete" else {}

    with pytest.raises(LeaseLostError) as lost:
        getattr(lifecycle, name)(
            run, at(31), rules=elsewhere.rules, fence=Fence("lease-1", 1), **facts
        )

    assert lost.value.details["known"] == "it is held by laptop, token 2"
    assert lost.value.details["fencing_token"] == 2
