"""Attempts whose worker says nothing more: what each of them counts as, whatever finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.dispatch import Rules
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunStatus, Termination
from leasehold.domain.stored import replace
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position

#: The step draft has a dispatch deadline of 180 s and two retries; two interruptions are allowed.
DEADLINE_S = 180


@dataclass(frozen=True)
class Finder:
    """The first event after the end of a lease, and its answer."""

    find: Callable[[Runs, Manifest, float], Change]
    expired: Outcome
    overran: Outcome


def by_sweep(runs: Runs, run: Manifest, second: float) -> Change:
    assert run.position.lease is not None
    return lifecycle.expire(
        run, runs.at(second), rules=runs.rules, lease_id=run.position.lease.lease_id
    )


def by_restart(runs: Runs, run: Manifest, second: float) -> Change:
    assert run.position.lease is not None
    lease_id = run.position.lease.lease_id
    return lifecycle.expire(
        run, runs.at(second), rules=runs.rules, lease_id=lease_id, holder_gone=True
    )


def by_hint(runs: Runs, run: Manifest, second: float) -> Change:
    return lifecycle.arrive(
        run,
        runs.at(second),
        rules=runs.rules,
        generation=run.position.dispatch.generation,
        lease_id="lease-9",
        holder="host-b",
    )


def by_claim(runs: Runs, run: Manifest, second: float) -> Change:
    return lifecycle.claim(
        run, runs.at(second), rules=runs.rules, lease_id="lease-9", holder="laptop"
    )


def by_resume(runs: Runs, run: Manifest, second: float) -> Change:
    paused = runs.paused(run)
    return lifecycle.resume(paused, runs.at(second), rules=runs.rules, actor="ada", reason="go")


FINDERS = {
    "sweep": Finder(by_sweep, Outcome.EXPIRED, Outcome.EXPIRED),
    "restart": Finder(by_restart, Outcome.EXPIRED, Outcome.EXPIRED),
    "hint": Finder(by_hint, Outcome.ACQUIRED, Outcome.RETRY_SCHEDULED),
    "claim": Finder(by_claim, Outcome.ACQUIRED, Outcome.RETRY_SCHEDULED),
    "resume": Finder(by_resume, Outcome.RESUMED, Outcome.RESUMED),
}
ALL = pytest.mark.parametrize("finder", FINDERS.values(), ids=FINDERS)


def renewed(runs: Runs, run: Manifest, *, until: int) -> Manifest:
    """The run whose worker renewed its lease, the last time at that second.

    Past the deadline only a worker of an earlier version renews: this one ends the attempt then.
    """
    lease = run.position.lease
    assert lease is not None
    expires_at = min(runs.at(until + 30), lease.max_expires_at)
    return at_position(
        run, heartbeat_at=runs.at(until), lease=replace(lease, expires_at=expires_at)
    )


# -- past the deadline -----------------------------------------------------------------------------


@ALL
def test_a_worker_that_was_heard_of_past_its_deadline_hung_and_its_attempt_failed(
    runs: Runs, finder: Finder
) -> None:
    run = renewed(runs, runs.leased(), until=DEADLINE_S)

    change = finder.find(runs, run, 210)

    after = change.manifest
    ends = after.position.attempts
    assert change.outcome is finder.overran
    assert (ends.failed, ends.expired, after.position.interruptions, after.position.silences) == (
        1,
        0,
        0,
        0,
    )
    assert after.steps["draft"].attempts.failed == 1
    assert after.position.lease is None
    assert change.events[0].type == "step_terminated"
    assert change.events[0].reason == "dispatch_deadline_exceeded"


@ALL
def test_a_worker_that_fell_silent_before_its_deadline_lost_its_lease(
    runs: Runs, finder: Finder
) -> None:
    """Whatever the end of its lease: one that dies in its first second did not hang."""
    run = runs.leased()
    assert run.position.lease is not None
    run = at_position(run, lease=replace(run.position.lease, expires_at=runs.at(DEADLINE_S + 300)))

    change = finder.find(runs, run, DEADLINE_S + 300)

    ends = change.manifest.position.attempts
    assert change.outcome is finder.expired
    assert (ends.failed, ends.expired, change.manifest.position.interruptions) == (0, 1, 1)
    assert change.events[0].reason == "lease_expired"


def test_a_hung_attempt_is_repeated_after_its_backoff(runs: Runs) -> None:
    run = renewed(runs, runs.leased(), until=470)

    swept = by_sweep(runs, run, 500).manifest
    hinted = by_hint(runs, run, 500)

    for after in (swept, hinted.manifest):
        assert (after.status, after.error_at) == (RunStatus.ERROR, runs.at(500))
        assert after.steps["draft"].status is RunStatus.ERROR
        assert (after.position.dispatch.generation, after.position.dispatch.not_before) == (
            2,
            runs.at(510),
        )
    assert [(t.generation, t.not_before) for t in hinted.owed] == [(2, runs.at(510))]


def test_what_hung_says_what_happened_and_what_to_do(runs: Runs) -> None:
    run = renewed(runs, runs.leased(), until=200)

    after = by_sweep(runs, run, 230).manifest

    assert after.error is not None
    assert (after.error.type, after.error.code) == (
        "DispatchDeadlineError",
        "dispatch_deadline_exceeded",
    )
    assert after.error.message == (
        "Attempt 1 of step draft was still running at its dispatch deadline of 180 s, without an "
        "output. Let the handler end in time (ctx.time_left), keep what it has "
        "(ctx.checkpoint), or raise the deadline of the step."
    )
    assert (after.error.step, after.error.attempt) == ("draft", 1)


def test_a_step_that_hangs_each_time_is_out_of_retries_after_as_many_attempts(runs: Runs) -> None:
    """Not after as many as may be interrupted: at a deadline of 15 min that took 3 h 40."""
    run, second, attempts = runs.pending(), 0, 0
    while not run.dead_lettered:
        attempts += 1
        run = runs.leased(run, at=second, lease_id=f"lease-{attempts}")
        assert run.position.lease is not None
        run = renewed(runs, run, until=second + 470)
        run = by_sweep(runs, run, second + 490).manifest
        second += 490 + 600

    assert attempts == 3
    assert (run.dead_letter_reason, run.position.attempts.failed) == ("RETRIES_EXHAUSTED", 3)
    assert (run.dead_letter_detail or "").startswith(
        "Step draft failed 3 of 3 times without progress; last: DispatchDeadlineError: "
        "Attempt 3 of step draft "
    )


def test_a_worker_that_gives_its_lease_back_past_the_deadline_was_heard_of_then(
    runs: Runs,
) -> None:
    """Also one without a heartbeat: to release the lease is a word too."""
    run = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")

    def released(second: float) -> Change:
        return lifecycle.release(
            run,
            runs.at(second),
            rules=runs.rules,
            fence=runs.fence(run),
            reason=Termination.LEASE_EXPIRED,
        )

    early, late = released(25.9), released(26)

    assert (early.outcome, early.manifest.position.attempts.expired) == (Outcome.RELEASED, 1)
    assert early.events[0].reason == "lease_expired"
    assert (late.outcome, late.manifest.position.attempts.failed) == (Outcome.RETRY_SCHEDULED, 1)
    assert late.events[0].reason == "dispatch_deadline_exceeded"
    assert late.manifest.position.last_settlement is not None
    assert late.manifest.position.last_settlement.outcome is Outcome.RETRY_SCHEDULED


def test_a_shutdown_is_an_interruption_however_late(runs: Runs) -> None:
    run = renewed(runs, runs.leased(), until=200)

    change = lifecycle.release(
        run,
        runs.at(205),
        rules=runs.rules,
        fence=runs.fence(run),
        reason=Termination.INSTANCE_SHUTDOWN,
    )

    ends = change.manifest.position.attempts
    assert (change.outcome, ends.interrupted, ends.failed) == (Outcome.RELEASED, 1, 0)


def test_a_paused_run_whose_attempt_hung_waits_for_a_person(runs: Runs) -> None:
    run = runs.paused(renewed(runs, runs.leased(), until=200))

    change = by_sweep(runs, run, 230)

    after = change.manifest
    assert (after.status, after.paused, after.position.attempts.failed) == (
        RunStatus.ERROR,
        True,
        1,
    )
    assert (after.position.dispatch.generation, after.alarm_at) == (1, None)


def test_a_resumed_run_whose_attempt_hung_goes_on_at_once(runs: Runs) -> None:
    """To resume is to wait for no backoff."""
    change = by_resume(runs, renewed(runs, runs.leased(), until=200), 230)

    after = change.manifest
    assert (after.status, after.paused) == (RunStatus.PENDING, False)
    assert (after.position.dispatch.generation, after.position.dispatch.not_before) == (
        2,
        runs.at(230),
    )
    assert [event.type for event in change.events] == ["step_terminated", "run_resumed"]


def test_a_clock_set_back_makes_no_deadline_pass(runs: Runs, at: At) -> None:
    run = at_position(runs.leased(at=1000), heartbeat_at=at(10))

    assert by_sweep(runs, run, 1030).events[0].reason == "lease_expired"


# -- silence ---------------------------------------------------------------------------------------


@pytest.fixture
def watchful(runs: Runs) -> Runs:
    """The same runs where five minutes without a word are a silence."""
    return replace(runs, rules=replace(runs.rules, stuck_timeout=timedelta(minutes=5)))


def silent(runs: Runs, run: Manifest, *, at: float, for_s: float) -> Change:
    """A worker takes the step, and the sweep comes that much later."""
    lease_id = f"lease-{run.fencing_token + 1}"
    return by_sweep(runs, runs.leased(run, at=at, lease_id=lease_id), at + for_s)


def interrupted(runs: Runs, run: Manifest, *, at: float) -> Manifest:
    run = runs.leased(run, at=at, lease_id=f"lease-{run.fencing_token + 1}")
    return lifecycle.release(
        run,
        runs.at(at + 1),
        rules=runs.rules,
        fence=runs.fence(run),
        reason=Termination.INSTANCE_SHUTDOWN,
    ).manifest


def test_the_first_silence_is_no_proof_whatever_was_cut_short_before(watchful: Runs) -> None:
    """A deploy, then a silence: neither is the fault of the step."""
    run = interrupted(watchful, watchful.pending(), at=0)

    change = silent(watchful, run, at=10, for_s=500)

    assert (change.outcome, change.manifest.position.silences) == (Outcome.EXPIRED, 1)
    assert change.manifest.position.interruptions == 2


def test_a_killed_worker_and_a_deploy_are_no_silence(runs: Runs) -> None:
    """Of a step without a heartbeat nothing is heard until its lease ends."""
    run = interrupted(runs, runs.handed_off(), at=10)
    run = runs.leased(run, at=20, lease_id="lease-9")
    assert run.position.lease is not None
    assert run.position.lease.expires_at == runs.at(20 + 320)
    patient = replace(runs, rules=replace(runs.rules, stuck_timeout=timedelta(minutes=1)))

    change = by_sweep(patient, run, 20 + 320 + 60)

    assert (change.outcome, change.manifest.position.silences) == (Outcome.EXPIRED, 0)


def test_the_second_silence_gives_the_run_up(watchful: Runs) -> None:
    first = silent(watchful, watchful.pending(), at=0, for_s=361).manifest

    change = silent(watchful, first, at=1000, for_s=600)

    run = change.manifest
    assert (run.dead_letter_reason, run.position.silences) == ("STUCK_IN_PROGRESS", 2)
    assert run.dead_letter_detail == (
        "Step draft was not heard of for 600 s, for the second time without progress."
    )


@pytest.mark.parametrize(("for_s", "silences"), [(360, 0), (360.001, 1)])
def test_a_silence_is_longer_than_the_threshold_and_the_grace(
    watchful: Runs, for_s: float, silences: int
) -> None:
    assert (
        silent(watchful, watchful.pending(), at=0, for_s=for_s).manifest.position.silences
        == silences
    )


@pytest.mark.parametrize(("for_s", "silences"), [(120, 0), (120.001, 1)])
def test_a_short_threshold_has_effect(runs: Runs, for_s: float, silences: int) -> None:
    """Its floor is what the lease that was held could run without a word, here 30 s."""
    impatient = replace(runs, rules=replace(runs.rules, stuck_timeout=timedelta(minutes=1)))

    assert (
        silent(impatient, impatient.pending(), at=0, for_s=for_s).manifest.position.silences
        == silences
    )


@pytest.mark.parametrize(("for_s", "silences"), [(90, 0), (90.001, 1)])
def test_no_threshold_is_shorter_than_the_lease(runs: Runs, for_s: float, silences: int) -> None:
    hasty = replace(runs, rules=replace(runs.rules, stuck_timeout=timedelta(milliseconds=1)))

    assert silent(hasty, hasty.pending(), at=0, for_s=for_s).manifest.position.silences == silences


def test_a_silence_is_counted_from_the_last_word(watchful: Runs) -> None:
    run = renewed(watchful, watchful.leased(), until=100)
    assert by_sweep(watchful, run, 100 + 360).manifest.position.silences == 0

    assert by_sweep(watchful, run, 100 + 361).manifest.position.silences == 1


@pytest.mark.parametrize("finder", ["sweep", "hint", "claim"])
def test_any_process_that_finds_a_silence_counts_it(watchful: Runs, finder: str) -> None:
    change = FINDERS[finder].find(watchful, watchful.leased(), 500)

    assert (change.manifest.position.silences, change.manifest.position.interruptions) == (1, 1)


@pytest.mark.parametrize("finder", ["restart", "resume"])
def test_what_is_explained_is_no_silence(watchful: Runs, finder: str) -> None:
    """The holder's process is known to be gone; or a person had paused the run."""
    run = at_position(watchful.leased(), silences=1)

    change = FINDERS[finder].find(watchful, run, 500)

    assert (change.manifest.position.silences, change.manifest.position.interruptions) == (1, 1)
    assert not change.manifest.dead_lettered


# -- time off --------------------------------------------------------------------------------------

#: A lease of draft that nobody renews runs for 30 s.
TEN_MINUTES_LATE = 30 + 600


@ALL
@pytest.mark.parametrize(("late", "counts"), [(0, 1), (0.001, 0), (9 * 3600, 0)])
def test_an_attempt_that_ended_in_time_off_counts_as_nothing(
    runs: Runs, finder: Finder, late: float, counts: int
) -> None:
    change = finder.find(runs, runs.leased(), TEN_MINUTES_LATE + late)

    after = change.manifest
    assert (after.position.interruptions, after.position.silences) == (counts, 0)
    assert after.position.attempts.expired == 1, (
        "it is an attempt all the same, with a number of its own"
    )


@ALL
def test_a_step_that_is_cut_short_night_after_night_is_not_given_up(
    runs: Runs, finder: Finder
) -> None:
    """Two interruptions are allowed, and two silences are too many."""
    night, run = 9 * 3600, runs.pending()
    for number in range(12):
        run = runs.leased(run, at=number * night, lease_id=f"lease-{number}")
        run = finder.find(runs, run, (number + 1) * night).manifest
        if run.position.lease is not None:  # whoever came took the step itself
            run = by_restart(runs, run, (number + 1) * night).manifest
            run = at_position(run, interruptions=0)

    assert not run.dead_lettered
    assert run.position.attempts.expired >= 12


def test_a_step_that_kills_its_worker_each_time_is_given_up(runs: Runs) -> None:
    """With a back-off of five minutes between the starts of its server, too."""
    run, second = runs.pending(), 0
    while not run.dead_lettered:
        run = runs.leased(run, at=second, lease_id=f"lease-{second}")
        second += 350
        run = by_sweep(runs, run, second).manifest

    assert (run.dead_letter_reason, run.position.attempts.expired) == ("STUCK_IN_PROGRESS", 3)


# -- shutdowns -------------------------------------------------------------------------------------


def shut_down(runs: Runs, *, each_s: int, times: int) -> Manifest:
    run = runs.pending()
    for number in range(times):
        run = interrupted(runs, run, at=number * each_s)
    return run


def test_a_storm_of_deploys_is_one_outage(runs: Runs) -> None:
    """A server that is replaced twelve times within ten minutes says nothing about its runs."""
    run = shut_down(runs, each_s=50, times=12)

    assert (run.status, run.position.interruptions, run.position.attempts.interrupted) == (
        "PENDING",
        1,
        12,
    )


def test_a_step_that_no_platform_lets_end_is_given_up(runs: Runs) -> None:
    run = shut_down(runs, each_s=600, times=3)

    assert (run.dead_letter_reason, run.position.interruptions) == ("STUCK_IN_PROGRESS", 3)


def test_shutdowns_that_go_on_and_on_count_once_in_ten_minutes(runs: Runs) -> None:
    """So they come to an end, however near to each other they are."""
    run = shut_down(runs, each_s=60, times=21)

    assert (run.dead_lettered, run.position.attempts.interrupted) == (True, 21)


def test_a_clock_that_jumps_back_hides_no_shutdown(runs: Runs, at: At) -> None:
    run = interrupted(runs, runs.pending(), at=3600)

    assert (
        interrupted(
            runs,
            at_position(run, dispatch=replace(run.position.dispatch, not_before=at(0))),
            at=2999,
        ).position.interruptions
        == 2
    )


@pytest.mark.parametrize("what", ["progress", "hand-off", "retry"])
def test_silences_are_counted_anew_where_interruptions_are(
    runs: Runs, rules: Rules, at: At, what: str
) -> None:
    run = at_position(runs.leased(), silences=1, interruptions=1)
    if what == "progress":
        run = runs.checkpointed(run, at=5)
    elif what == "hand-off":
        run = runs.with_output(run, at=5)
    else:
        run = lifecycle.retry(runs.failed(run), at(6), rules=rules, actor="ada", reason="").manifest

    assert (run.position.silences, run.position.interruptions) == (0, 0)
