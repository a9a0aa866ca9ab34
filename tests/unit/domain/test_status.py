"""The whole state machine, cell by cell."""

import itertools

import pytest

from leasehold.domain.status import NEXT, Outcome, RunEvent, RunStatus, after
from leasehold.errors import ImpossibleEventError

#: Rows are events, columns the status before, cells the status after; `-` cannot happen.
TABLE = """
event             PENDING      IN_PROGRESS  ERROR        BLOCKED    COMPLETED
lease_acquired    IN_PROGRESS  -            IN_PROGRESS  -          -
lease_taken_over  -            IN_PROGRESS  -            -          -
lease_renewed     -            IN_PROGRESS  -            -          -
lease_released    -            PENDING      -            -          -
step_continued    -            PENDING      -            -          -
lease_expired     -            PENDING      -            -          -
step_handed_off   -            PENDING      -            -          -
trial_opened      -            PENDING      -            PENDING    -
last_step_done    COMPLETED    COMPLETED    -            COMPLETED  -
attempt_failed    -            ERROR        -            -          -
gate_failed       -            BLOCKED      -            -          -
step_unknown      BLOCKED      -            BLOCKED      -          -
cannot_run        -            BLOCKED      -            -          -
looked_again      -            -            -            PENDING    -
budget_exceeded   BLOCKED      -            BLOCKED      -          -
call_unconfirmed  BLOCKED      -            BLOCKED      -          -
wait_begun        BLOCKED      -            -            -          -
wait_over         PENDING      -            -            PENDING    -
paused            PENDING      IN_PROGRESS  ERROR        BLOCKED    -
resumed           PENDING      IN_PROGRESS  PENDING      BLOCKED    -
budget_raised     -            -            -            PENDING    -
retried           -            -            PENDING      PENDING    -
approved          -            -            -            PENDING    -
cancelled         PENDING      PENDING      ERROR        BLOCKED    -
dead_lettered     ERROR        ERROR        ERROR        ERROR      -
children_begun    -            PENDING      -            -          -
children_stopped  BLOCKED      -            -            -          -
child_failed      BLOCKED      BLOCKED      BLOCKED      BLOCKED    -
item_left         PENDING      PENDING      PENDING      -          -
last_item_left    COMPLETED    COMPLETED    COMPLETED    -          -
"""
HEADS, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [
    (RunStatus[status], RunEvent[row[0].upper()], cell)
    for row in ROWS
    for status, cell in zip(HEADS[1:], row[1:], strict=True)
]


def test_the_table_above_has_every_pair() -> None:
    pairs = {(status, event) for status, event, _ in CELLS}

    assert pairs == set(itertools.product(RunStatus, RunEvent))


@pytest.mark.parametrize("status", RunStatus)
def test_each_event_leads_where_it_should_or_cannot_happen(status: RunStatus) -> None:
    cells = {event: then for of, event, then in CELLS if of is status}

    assert {event: led_to(status, event) for event in cells} == {
        event: {"status": status.value, "event": event.value} if then == "-" else then
        for event, then in cells.items()
    }


def led_to(status: RunStatus, event: RunEvent) -> object:
    """Return the status behind an event, or the facts of the refusal."""
    try:
        return after(status, event).name
    except ImpossibleEventError as refused:
        return refused.details


def test_a_completed_run_has_no_events() -> None:
    """What is over stays over: this is the row that dead letters and lineage rely on."""
    assert [event for status, event in NEXT if status is RunStatus.COMPLETED] == []


@pytest.mark.parametrize(
    ("word", "outcomes"),
    [
        (
            "duplicate",
            {
                "stale",
                "already_completed",
                "lease_lost",
                "not_due",
                "moved_on",
                "in_order",
                "archived",
                "archive_owed",
                "children_told",
                "items_taken",
            },
        ),
        (
            "parked",
            {
                *("parked", "awaits_claim", "still_queued", "alarm_set", "uncounted"),
                *("children_begun", "resting", "asked", "awaits_slot", "called"),
            },
        ),
    ],
)
def test_http_has_one_word_for_what_its_callers_need_not_tell_apart(
    word: str, outcomes: set[str]
) -> None:
    """The list of answers is an interface; what an outcome means inside may get finer."""
    assert {outcome.value for outcome in Outcome if outcome.word == word} == outcomes


def test_every_other_outcome_is_its_own_word() -> None:
    others = [outcome for outcome in Outcome if outcome.word not in ("duplicate", "parked")]

    assert all(outcome.word == outcome.value for outcome in others)
