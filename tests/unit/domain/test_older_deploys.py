"""Runs as an older deploy reads them, during a rollout and after a rollback."""

from __future__ import annotations

from dataclasses import replace

from leasehold.domain import lifecycle
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import owed_messages
from leasehold.domain.manifest import manifest_of, to_document
from leasehold.domain.status import DeadLetterReason, RunStatus
from tests.unit.domain.runs import At, Runs

#: An older deploy reads these fields as enums: another word there makes the whole run unreadable.
STATUS = {"BLOCKED", "COMPLETED", "ERROR", "IN_PROGRESS", "PENDING"}
REASONS = {
    "NEVER_STARTED",
    "PERMANENT_FAILURE",
    "RETRIES_EXHAUSTED",
    "STUCK_IN_PROGRESS",
    "UNRECOVERED_ERROR",
}


def test_status_and_reason_have_the_words_that_older_deploys_know() -> None:
    assert set(RunStatus) == STATUS
    assert set(DeadLetterReason) == REASONS


def test_what_an_older_deploy_does_not_know_of_a_run_it_keeps(runs: Runs, at: At) -> None:
    """As this one keeps what a later one adds: so it keeps the announcement of a run."""
    later = {**to_document(runs.blocked()), "laterField": {"occurrence": "1"}}

    run = manifest_of("r-1", later)
    ended = lifecycle.cancel(run, at(9), rules=runs.rules, actor="ada", reason="").manifest

    assert to_document(ended)["laterField"] == {"occurrence": "1"}


def test_a_run_that_an_older_deploy_ended_is_not_announced(
    runs: Runs, rules: Rules, at: At
) -> None:
    """It may have ended a year ago; a later write for another reason does not announce it."""
    telling = replace(rules, channels_for=lambda _pipeline, _event: ("log",))
    ended = runs.completed()

    change = lifecycle.recreate(
        ended,
        at(20),
        rules=telling,
        from_step="draft",
        new=runs.new("r-2"),
        actor="ada",
        reason="",
    )

    assert ended.announcement is None
    assert (change.deliveries, owed_messages(change.manifest)) == ((), ())


def test_an_announcement_of_a_later_version_is_read(runs: Runs) -> None:
    """And nothing is said in its name that this version does not know."""
    blocked = to_document(runs.blocked())
    told = {
        "occurrence": "1",
        "event": "run_paused",
        "at": blocked["updatedAt"],
        "channels": ["log"],
        "tone": "calm",
    }

    run = manifest_of("r-1", {**blocked, "announcement": told})

    assert run.announcement is not None
    assert run.announcement.event == "run_paused"
    assert owed_messages(run) == ()
