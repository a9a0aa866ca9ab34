"""The ledger: what is known of an ended run for good."""

from __future__ import annotations

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import CallCount, KeptValue
from leasehold.domain.ledger import ledger_of
from leasehold.domain.manifest import to_document
from leasehold.domain.manifest_parts import Attempts, Place
from leasehold.domain.signal import WaitRule
from leasehold.domain.spend import spend_of
from leasehold.domain.stored import make, replace
from tests.unit.domain.runs import Runs
from tests.worlds.builders import with_step


def test_a_completed_run_in_figures(runs: Runs) -> None:
    entry = dict(to_document(ledger_of(runs.completed())))

    steps = entry.pop("steps")
    assert entry == {
        "runId": "r-1",
        "pipeline": "letters",
        "outcome": "completed",
        "lastStep": "send",
        "createdAt": runs.at(0),
        "endedAt": runs.at(9),
        "totalS": 9.0,
        "waitingS": 1.0,
        "executingS": 8.0,
        "attempts": {},
        "retries": 0,
        "continuations": 0,
        "trials": 1,
        "callsMade": 0,
        "callsSpared": 0,
        "rejectedCheckpoints": 0,
        "stepTypes": ("draft", "send"),
    }
    assert steps["draft"] == {
        "startedAt": runs.at(0),
        "completedAt": runs.at(5),
        "executingS": 5.0,
        "executionSeconds": 5.0,
        "attempts": {},
    }


def test_the_commit_that_ends_a_run_has_its_entry(runs: Runs) -> None:
    sending = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")
    facts = {"rules": runs.rules, "fence": runs.fence(sending)}

    change = lifecycle.complete(sending, runs.at(9), output=KeptValue(text="1"), **facts)

    assert change.ledger is not None
    assert change.ledger == ledger_of(change.manifest)


def test_attempts_are_counted_by_how_they_ended_over_all_steps(runs: Runs) -> None:
    run = runs.completed()
    draft = with_step(
        run,
        "draft",
        attempts=Attempts(failed=2, expired=1, continued=3),
        calls=CallCount(made=4, spared=1),
        rejected=1,
        spend=spend_of(700, 0.25),
    )
    send = with_step(replace(run, steps=draft), "send", attempts=Attempts(failed=1))

    entry = ledger_of(replace(run, steps=send))

    assert entry.attempts == {"failed": 3, "expired": 1, "continued": 3}
    assert (entry.retries, entry.continuations) == (3, 3)
    assert (entry.calls_made, entry.calls_spared, entry.rejected_checkpoints) == (4, 1, 1)
    assert entry.steps["send"].attempts == {"failed": 1}
    assert (entry.steps["draft"].usd, entry.steps["send"].usd) == (0.25, None)


def test_the_failure_that_gave_the_run_up_was_not_retried(runs: Runs) -> None:
    entry = ledger_of(runs.dead_lettered())

    assert (entry.outcome, entry.reason) == ("dead_lettered", "PERMANENT_FAILURE")
    assert (entry.attempts, entry.retries, entry.last_step) == ({"failed": 1}, 0, "draft")
    assert entry.steps["send"].started_at is None


def test_a_cancelled_run_ended_when_it_was_cancelled_whenever_it_is_archived(runs: Runs) -> None:
    run = runs.cancelled(runs.leased())
    later = runs.archive_noted(run, at=500, compress_artifacts="away")

    assert ledger_of(run).outcome == "cancelled"
    assert later.ledger is None
    assert ledger_of(later.manifest) == ledger_of(run)
    assert ledger_of(run).total_s == 7.0


def test_a_wait_has_its_own_name_and_not_the_type_of_the_step_beside_it(runs: Runs) -> None:
    """Else the hours that people take would be learnt as durations of that step."""
    wait = make(Place, step_type="draft", wait=make(WaitRule))

    assert ledger_of(replace(runs.completed(), places={"send": wait})).step_types == (
        "draft",
        "send",
    )


def test_it_holds_nothing_that_a_user_wrote(runs: Runs) -> None:
    """It stays when the run is purged."""
    run = replace(
        runs.dead_lettered(),
        labels=("customer:Ada",),
        input='"Secret"',
        dead_letter_detail="Secret detail",
    )

    text = ledger_of(run).model_dump_json()

    assert not [word for word in ("Ada", "Secret", "Try later") if word in text]
