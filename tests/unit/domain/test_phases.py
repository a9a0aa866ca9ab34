"""How long the phases of each attempt take is kept with its step, however the attempt ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.ledger import ledger_of
from leasehold.domain.manifest import Manifest, to_document
from leasehold.domain.manifest_parts import MAX_EARLIER_ATTEMPTS, EarlierAttempt, StepRecord
from leasehold.domain.notes import MadeOutput, Notes, Phases
from leasehold.domain.status import AttemptEnd, Termination
from leasehold.domain.timeline import timeline
from tests.unit.domain.runs import At, Runs

COLD = Phases(3.25, 1.5, is_cold=True, first_tool="search")


def renewed(runs: Runs, run: Manifest, *, at: float, phases: Phases = COLD) -> Manifest:
    return lifecycle.renew(
        run, runs.at(at), rules=runs.rules, fence=runs.fence(run), notes=Notes(phases=phases)
    ).manifest


def finished(runs: Runs, run: Manifest, *, at: float, phases: Phases | None = COLD) -> Manifest:
    return lifecycle.complete(
        run,
        runs.at(at),
        rules=runs.rules,
        fence=runs.fence(run),
        output=KeptValue(text='"Dear Ada"'),
        notes=Notes(phases=phases),
    ).manifest


def times(record: StepRecord | EarlierAttempt) -> tuple[object, ...]:
    return (
        record.bootstrap_seconds,
        record.execution_seconds,
        record.cold_start,
        record.first_tool,
    )


def test_an_output_has_the_phases_that_its_worker_measured(runs: Runs) -> None:
    run = finished(runs, runs.leased(), at=5)

    record = run.steps["draft"]
    assert times(record) == (3.25, 1.5, True, "search")
    assert record.earlier_attempts is None
    (told,) = [event for event in timeline(run, []) if event.type == "step_completed"]
    facts = told.model_dump(by_alias=True)
    assert (facts["bootstrapSeconds"], facts["executionSeconds"]) == (3.25, 1.5)
    assert (facts["coldStart"], facts["firstTool"]) == (True, "search")


def test_without_a_measure_the_execution_is_the_time_since_the_lease(runs: Runs) -> None:
    record = finished(runs, runs.leased(), at=5, phases=None).steps["draft"]

    assert times(record) == (None, 5.0, None, None)


def test_a_failed_attempt_keeps_its_phases_beside_those_of_the_next(runs: Runs, at: At) -> None:
    run = runs.leased()
    failed = lifecycle.fail(
        run,
        at(5),
        rules=runs.rules,
        fence=runs.fence(run),
        error=runs.error(),
        notes=Notes(phases=COLD),
    )
    (told,) = failed.events
    again = runs.leased(failed.manifest, at=20, lease_id="lease-2")
    done = finished(runs, again, at=24, phases=Phases(0.5, 2.5, is_cold=False))

    record = done.steps["draft"]
    assert times(record) == (0.5, 2.5, False, None)
    (earlier,) = record.earlier_attempts or ()
    assert times(earlier) == (3.25, 1.5, True, "search")
    assert (earlier.attempt, earlier.end, earlier.reason, earlier.at) == (1, "failed", None, at(5))
    facts = told.model_dump(by_alias=True)
    assert (facts["bootstrapSeconds"], facts["executionSeconds"]) == (3.25, 1.5)


def test_the_bootstrap_of_a_worker_that_is_killed_is_known_from_its_last_renewal(
    runs: Runs, at: At
) -> None:
    """When it was killed is not known: it was at work as long as it was heard of."""
    run = renewed(runs, runs.leased(), at=10)

    left = lifecycle.expire(run, at(60), rules=runs.rules, lease_id="lease-1")

    record = left.manifest.steps["draft"]
    (earlier,) = record.earlier_attempts or ()
    assert times(earlier) == (3.25, 6.75, True, "search")
    assert (earlier.end, earlier.reason) == ("expired", "lease_expired")
    assert times(record) == (None, None, None, None), "the next attempt has its own"
    facts = left.events[0].model_dump(by_alias=True)
    assert (facts["bootstrapSeconds"], facts["executionSeconds"]) == (3.25, 6.75)


@pytest.mark.parametrize(
    "reason", [Termination.AGENT_TIMEOUT_EXCEEDED, Termination.MEMORY_LIMIT_EXCEEDED]
)
def test_an_attempt_at_a_limit_says_which_one(runs: Runs, at: At, reason: Termination) -> None:
    run = runs.leased()
    left = lifecycle.exceed_limit(
        run,
        at(25),
        rules=runs.rules,
        fence=runs.fence(run),
        reason=reason,
        error=runs.error(),
        notes=Notes(phases=COLD),
    ).manifest

    (earlier,) = left.steps["draft"].earlier_attempts or ()
    assert (earlier.end, earlier.reason) == ("failed", reason.value)


def test_an_attempt_that_is_cancelled_keeps_how_long_it_took_so_far(runs: Runs, at: At) -> None:
    run = renewed(runs, runs.leased(), at=4)
    left = lifecycle.cancel(run, at(9), rules=runs.rules, actor="ann", reason="").manifest

    (earlier,) = left.steps["draft"].earlier_attempts or ()
    assert (earlier.end, earlier.reason) == ("cancelled", "cancelled")
    assert times(earlier) == (3.25, 5.75, True, "search")
    assert ledger_of(left).steps["draft"].earlier_attempts == (earlier,)


def test_a_clock_that_was_set_back_gives_no_time(runs: Runs, at: At) -> None:
    run = runs.leased(at=100)

    left = lifecycle.cancel(run, at(40), rules=runs.rules, actor="ann", reason="").manifest

    (earlier,) = left.steps["draft"].earlier_attempts or ()
    assert earlier.execution_seconds is None


def test_an_output_that_waits_for_its_gates_keeps_its_times(runs: Runs, at: At) -> None:
    """Its worker is shut down while a gate judges; another one has it judged."""
    run = runs.leased()
    made = Notes(phases=COLD, output=MadeOutput(KeptValue(text='"Dear Ada"')))
    unjudged = lifecycle.renew(
        run, at(5), rules=runs.rules, fence=runs.fence(run), notes=made
    ).manifest
    released = lifecycle.release(
        unjudged,
        at(6),
        rules=runs.rules,
        fence=runs.fence(unjudged),
        reason=Termination.INSTANCE_SHUTDOWN,
    ).manifest

    assert released.steps["draft"].attempts.interrupted == 1
    assert times(released.steps["draft"]) == (3.25, 1.5, True, "search")
    assert released.steps["draft"].earlier_attempts is None


def test_the_latest_attempts_are_kept_and_no_more(runs: Runs, at: At) -> None:
    run = runs.pending()
    for number in range(MAX_EARLIER_ATTEMPTS + 5):
        run = runs.leased(run, at=10 * number, lease_id=f"lease-{number}")
        run = lifecycle.continue_later(
            runs.checkpointed(run, at=10 * number + 1, iterations=number + 1),
            at(10 * number + 2),
            rules=runs.rules,
            fence=runs.fence(run),
        ).manifest

    earlier = run.steps["draft"].earlier_attempts or ()
    assert [one.attempt for one in earlier] == list(range(6, MAX_EARLIER_ATTEMPTS + 6))
    assert {one.end for one in earlier} == {AttemptEnd.CONTINUED.value}


def test_the_ledger_keeps_both_phases_and_adds_them_up(runs: Runs) -> None:
    done = runs.leased(finished(runs, runs.leased(), at=5), at=6, lease_id="lease-2")
    run = finished(runs, done, at=9, phases=Phases(0.25, 2.0, is_cold=False))

    entry = ledger_of(run)

    assert entry.executing_s == 7.0
    draft = to_document(entry.steps["draft"])
    assert (draft["bootstrapSeconds"], draft["executionSeconds"]) == (3.25, 1.5)
    assert (draft["coldStart"], draft["firstTool"], draft["executingS"]) == (True, "search", 4.75)


def test_a_step_that_a_person_has_run_again_keeps_what_its_first_output_took(
    runs: Runs, at: At
) -> None:
    blocked = runs.blocked()
    took = blocked.steps["draft"].execution_seconds

    left = lifecycle.retry(
        blocked,
        blocked.updated_at + timedelta(seconds=1),
        rules=runs.rules,
        actor="ann",
        reason="",
    ).manifest

    (earlier,) = left.steps["draft"].earlier_attempts or ()
    assert (earlier.end, earlier.execution_seconds) == ("repeated", took)
    assert left.steps["draft"].execution_seconds is None


def test_of_a_worker_that_was_never_heard_of_nothing_is_known(runs: Runs, at: At) -> None:
    left = lifecycle.expire(runs.leased(), at(60), rules=runs.rules, lease_id="lease-1").manifest

    (earlier,) = left.steps["draft"].earlier_attempts or ()
    assert times(earlier) == (None, None, None, None)
