"""How a run begins."""

from __future__ import annotations

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.dispatch import Rules
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import replace
from leasehold.errors import IdempotencyKeyReusedError, RunBeingPurgedError, UnknownKeyError
from tests.unit.domain.runs import At, Runs


def test_a_run_starts_pending_at_its_first_step_and_owes_its_task(
    runs: Runs, rules: Rules, at: At
) -> None:
    new = runs.new(labels=("team:a",), idempotency_key="key-1")

    change = lifecycle.start(None, at(0), rules=rules, new=new)

    run = change.manifest
    assert change.outcome is Outcome.STARTED
    assert (run.status, run.current_step, run.plan) == ("PENDING", "draft", ("draft", "send"))
    assert (run.created_at, run.updated_at, run.alarm_at) == (at(0), at(0), at(60))
    assert (run.labels, run.idempotency_key) == (("team:a",), "key-1")
    assert (run.fencing_token, run.position.lease, run.position.attempt) == (0, None, 1)
    assert [(task.generation, task.queue) for task in change.owed] == [(1, "draft")]
    assert {step: record.status for step, record in run.steps.items()} == {
        "draft": RunStatus.PENDING,
        "send": RunStatus.PENDING,
    }


def test_the_settings_in_force_are_frozen_into_the_dispatch(runs: Runs) -> None:
    """All limits of an attempt come from one decision, whatever is deployed while it runs."""
    dispatch = runs.pending().position.dispatch

    assert dispatch.model_dump(exclude={"not_before"}) == {
        "generation": 1,
        "step": "draft",
        "trial": 1,
        "timeoutMs": 120_000,
        "deadlineS": 180,
        "maxRetries": 2,
        "retry": None,
        "heartbeatS": 10.0,
        "cleanupMs": 5000,
        "memoryLimitBytes": None,
        "silenceLimitMs": None,
        "budget": None,
        "queue": "draft",
        "remote": False,
        "scheduleToStartS": None,
        "sources": {"agentTimeout": "entry"},
        "nonce": "nonce-1",
        "traceparent": None,
        "taskOf": None,
        "redispatched": 0,
        "lostSince": None,
        "deferred": 0,
        "seenAt": None,
        "enqueued": False,
        "provisional": False,
        "afterBlock": None,
        "held": None,
    }


def test_the_shard_of_a_run_comes_from_its_id(runs: Runs) -> None:
    """It leads the alarm's index; it must be the same wherever it is worked out."""
    assert runs.pending().shard == 9


def test_the_same_key_and_input_find_the_run_that_was_started(
    runs: Runs, rules: Rules, at: At
) -> None:
    """And finish what it owes: the first caller may have died before its task was created."""
    run = runs.pending()

    change = lifecycle.start(
        run, at(9), rules=rules, new=runs.new(nonce="another", idempotency_key="key-1")
    )

    assert (change.outcome, change.manifest, change.changed) == (Outcome.EXISTING, run, False)
    assert len(change.owed) == 1


def test_the_order_of_labels_has_no_meaning(runs: Runs, rules: Rules, at: At) -> None:
    run = replace(runs.pending(), labels=("team:a", "env:b"))
    new = runs.new(idempotency_key="key-1", labels=("env:b", "team:a"))

    assert lifecycle.start(run, at(9), rules=rules, new=new).outcome is Outcome.EXISTING


def test_a_key_whose_run_is_being_deleted_waits_for_that(runs: Runs, rules: Rules, at: At) -> None:
    """A new run of the same id would lose its values to the purge."""
    run = replace(runs.pending(), purged_at=at(8))

    with pytest.raises(RunBeingPurgedError, match="Run r-1 of idempotency key 'key-1' is being"):
        lifecycle.start(run, at(9), rules=rules, new=runs.new(idempotency_key="key-1"))


@pytest.mark.parametrize(
    ("update", "differs"),
    [
        ({"input_digest": "digest-2"}, "input"),
        ({"pipeline": "reports"}, "pipeline"),
        ({"pipeline": "reports", "input_digest": "digest-2"}, "pipeline"),
        ({"labels": ("team:a",)}, "set of labels"),
        ({"labels": ("team:a",), "input_digest": "digest-2"}, "input"),
    ],
)
def test_a_key_that_began_something_else_is_refused(
    runs: Runs, rules: Rules, at: At, update: dict[str, str], differs: str
) -> None:
    new = runs.new(idempotency_key="key-1", **update)

    with pytest.raises(IdempotencyKeyReusedError) as refused:
        lifecycle.start(runs.pending(), at(9), rules=rules, new=new)

    assert refused.value.details == {
        "key": "key-1",
        "run_id": "r-1",
        "pipeline": "letters",
        "differs": differs,
    }


def test_a_run_whose_first_step_is_not_known_does_not_start(runs: Runs, at: At) -> None:
    with pytest.raises(UnknownKeyError, match="'draft' is not in the dispatch registry"):
        lifecycle.start(None, at(0), rules=runs.knowing_nothing(), new=runs.new())
