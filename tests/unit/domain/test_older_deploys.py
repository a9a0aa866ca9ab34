"""What an older deploy reads in a run, in the middle of a rollout and after a rollback."""

from __future__ import annotations

from leasehold.domain.status import DeadLetterReason, Outcome, RunStatus

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


def test_an_attempt_that_is_continued_is_the_one_answer_that_is_stored_by_another_word() -> None:
    """`lastSettlement.outcome` is an enum there, too; see `Settlement.exact`.

    A further word needs the same: add it here, and to what `Draft` stores in its place.
    """
    settles = {
        "blocked",
        "cancelled",
        "completed",
        "dead_lettered",
        "handed_off",
        "released",
        "retry_scheduled",
    }

    assert set(Outcome) >= settles | {"continued"}
    assert len(Outcome) == 38, "is the new word ever the outcome of a settlement?"
