"""The operations of people on a run in each state, and their effects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import Task
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import replace
from leasehold.errors import InvalidRequestError, NotAllowedError, UnknownKeyError
from tests.unit.domain.runs import ARCHIVE, At, Bound, Runs
from tests.worlds.builders import at_position

#: Rows are the states of a run: status, overlay, and for BLOCKED whether an output was kept.
TABLE = """
state                        pause  resume  cancel  retry  approve  recreate
PENDING                      yes    -       yes     -      -        -
IN_PROGRESS                  yes    -       yes     -      -        -
ERROR                        yes    -       yes     yes    -        -
BLOCKED/kept                 yes    -       yes     yes    yes      -
BLOCKED/unknown              yes    -       yes     yes    -        -
COMPLETED                    -      -       -       -      -        yes
PENDING+paused               -      yes     yes     -      -        -
IN_PROGRESS+paused           -      yes     yes     -      -        -
ERROR+paused                 -      yes     yes     yes    -        -
BLOCKED/kept+paused          -      yes     yes     yes    yes      -
BLOCKED/unknown+paused       -      yes     yes     yes    -        -
PENDING+cancelled            -      -       -       -      -        yes
IN_PROGRESS+cancelled        -      -       -       -      -        yes
ERROR+cancelled              -      -       -       -      -        yes
BLOCKED/kept+cancelled       -      -       -       -      -        yes
BLOCKED/unknown+cancelled    -      -       -       -      -        yes
ERROR+dead-lettered          -      -       -       -      -        yes
"""
HEADS, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [
    (row[0], Operation(name), cell)
    for row in ROWS
    for name, cell in zip(HEADS[1:], row[1:], strict=True)
]
OUTCOMES = {
    Operation.PAUSE: Outcome.PAUSED,
    Operation.RESUME: Outcome.RESUMED,
    Operation.CANCEL: Outcome.CANCELLED,
    Operation.RETRY: Outcome.RETRIED,
    Operation.APPROVE: Outcome.APPROVED,
    Operation.RECREATE: Outcome.RECREATED,
}
LIVE = {
    "PENDING": "pending",
    "IN_PROGRESS": "leased",
    "ERROR": "failed",
    "BLOCKED/kept": "blocked",
    "BLOCKED/unknown": "unknown",
    "COMPLETED": "completed",
}


@pytest.fixture
def run_in(runs: Runs) -> Callable[[str], Manifest]:
    """A run in a state of the table."""

    def build(state: str) -> Manifest:
        status, _, overlay = state.partition("+")
        if overlay == "dead-lettered":
            return runs.dead_lettered()
        run = getattr(runs, LIVE[status])()
        return getattr(runs, overlay)(run) if overlay else run

    return build


@pytest.fixture
def operate(runs: Runs, rules: Rules, at: At) -> Bound:
    """An operation by ada, at second 8."""

    def do(
        operation: Operation,
        run: Manifest,
        *,
        now: datetime | None = None,
        rules: Rules = rules,
        **facts: Any,
    ) -> Change:
        if operation is Operation.RECREATE:
            facts = {"from_step": "draft", "new": runs.new("r-2")} | facts
        transition = getattr(lifecycle, operation.value)
        return transition(run, now or at(8), rules=rules, actor="ada", reason="because", **facts)

    return do


@pytest.mark.parametrize("operation", Operation)
def test_an_operation_is_done_or_refused_as_the_table_says(
    run_in: Callable[[str], Manifest], operate: Bound, operation: Operation
) -> None:
    for state, allowed in ((state, allowed) for state, of, allowed in CELLS if of is operation):
        try:
            outcome = operate(operation, run_in(state)).outcome
        except NotAllowedError:
            assert allowed != "yes", state
        else:
            assert (allowed, outcome) == ("yes", OUTCOMES[operation]), state


@pytest.mark.parametrize(
    ("state", "operation", "message"),
    [
        (
            "ERROR+dead-lettered",
            Operation.RETRY,
            (
                "Cannot retry run r-1: it is dead-lettered and ERROR; allowed when it is "
                "in ERROR or BLOCKED and not dead-lettered."
            ),
        ),
        (
            "BLOCKED/unknown+paused",
            Operation.APPROVE,
            (
                "Cannot approve run r-1: it is paused and BLOCKED; "
                "allowed when it is BLOCKED with an output that was kept, or for a call that may "
                "have happened."
            ),
        ),
        (
            "COMPLETED",
            Operation.CANCEL,
            "Cannot cancel run r-1: it is COMPLETED; allowed when it is live.",
        ),
    ],
)
def test_a_refusal_says_what_the_run_is_and_when_it_would_be_allowed(
    run_in: Callable[[str], Manifest],
    operate: Bound,
    state: str,
    operation: Operation,
    message: str,
) -> None:
    with pytest.raises(NotAllowedError) as refused:
        operate(operation, run_in(state))

    assert refused.value.message == message


@pytest.mark.parametrize(
    ("state", "operation", "event_type"),
    [
        ("PENDING", Operation.PAUSE, "run_paused"),
        ("PENDING+paused", Operation.RESUME, "run_resumed"),
        ("PENDING", Operation.CANCEL, "run_cancelled"),
        ("ERROR", Operation.RETRY, "run_retried"),
        ("BLOCKED/kept", Operation.APPROVE, "run_approved"),
        ("COMPLETED", Operation.RECREATE, "run_recreated"),
    ],
)
def test_the_trace_says_who_did_it_and_why(
    run_in: Callable[[str], Manifest],
    operate: Bound,
    state: str,
    operation: Operation,
    event_type: str,
) -> None:
    change = operate(operation, run_in(state))

    event = change.events[0].model_dump()
    assert (event["type"], event["actor"], event["reason"]) == (event_type, "ada", "because")


# -- pause and resume --------------------------------------------------------------------------


def test_a_pause_lets_a_running_attempt_end(
    run_in: Callable[[str], Manifest], operate: Bound
) -> None:
    change = operate(Operation.PAUSE, run_in("IN_PROGRESS"))

    run = change.manifest
    assert (run.status, run.paused, run.position.lease.lease_id) == ("IN_PROGRESS", True, "lease-1")


def test_a_paused_run_owes_no_task(run_in: Callable[[str], Manifest], operate: Bound) -> None:
    assert operate(Operation.PAUSE, run_in("PENDING")).owed == ()


@pytest.mark.parametrize("state", ["PENDING+paused", "ERROR+paused"])
def test_a_resumed_run_is_dispatched_at_once(
    run_in: Callable[[str], Manifest], operate: Bound, at: At, state: str
) -> None:
    """A backoff that was cut short by a pause is over: the person decides."""
    change = operate(Operation.RESUME, run_in(state))

    run = change.manifest
    assert (run.status, run.paused, run.position.dispatch.not_before) == ("PENDING", False, at(8))
    assert run.steps["draft"].status is RunStatus.PENDING
    assert [(task.generation, task.not_before) for task in change.owed] == [
        (run.position.dispatch.generation, at(8))
    ]


def test_a_resumed_run_is_dispatched_where_it_stands_by_now(
    runs: Runs, rules: Rules, operate: Bound, at: At
) -> None:
    """Its attempt handed off while it was paused: the dispatch still named the step before."""
    run = runs.with_output(runs.paused(runs.leased()), at=7)

    resumed = operate(Operation.RESUME, run).manifest

    assert (resumed.position.dispatch.step, resumed.position.dispatch.generation) == ("send", 2)


def test_an_attempt_that_still_runs_goes_on_when_its_run_is_resumed(
    run_in: Callable[[str], Manifest], operate: Bound, at: At
) -> None:
    change = operate(Operation.RESUME, run_in("IN_PROGRESS+paused"))

    run = change.manifest
    assert (run.status, run.paused, run.position.dispatch.generation) == ("IN_PROGRESS", False, 1)
    assert (run.alarm_at, change.owed) == (at(30), ())


def test_a_resumed_run_that_waits_for_a_person_still_does(
    run_in: Callable[[str], Manifest], operate: Bound
) -> None:
    change = operate(Operation.RESUME, run_in("BLOCKED/kept+paused"))

    assert (change.manifest.status, change.manifest.paused) == ("BLOCKED", False)
    assert change.owed == ()


def test_an_attempt_that_died_meanwhile_is_counted_when_its_run_is_resumed(
    run_in: Callable[[str], Manifest], operate: Bound, at: At
) -> None:
    change = operate(Operation.RESUME, run_in("IN_PROGRESS+paused"), now=at(30))

    run = change.manifest
    assert (change.outcome, run.status, run.position.lease) == (Outcome.RESUMED, "PENDING", None)
    assert (run.position.attempts.expired, run.position.dispatch.generation) == (1, 2)
    assert run.steps["draft"].status is RunStatus.PENDING
    assert [event.type for event in change.events] == ["step_terminated", "run_resumed"]


def test_resuming_does_not_get_around_the_bound_on_interruptions(
    run_in: Callable[[str], Manifest], operate: Bound, at: At
) -> None:
    run = run_in("IN_PROGRESS+paused")
    run = at_position(run, interruptions=2)

    change = operate(Operation.RESUME, run, now=at(30))

    assert change.outcome is Outcome.DEAD_LETTERED
    assert change.manifest.dead_letter_reason == "STUCK_IN_PROGRESS"


def test_a_resumed_run_of_an_unknown_step_is_dispatched_for_those_who_know_it(
    runs: Runs, run_in: Callable[[str], Manifest], operate: Bound
) -> None:
    change = operate(Operation.RESUME, run_in("PENDING+paused"), rules=runs.knowing_nothing())

    assert (change.outcome, change.manifest.status) == (Outcome.RESUMED, "PENDING")
    assert [task.queue for task in change.owed] == ["draft"]


# -- cancel ------------------------------------------------------------------------------------


def test_a_cancelled_run_is_over_and_its_worker_has_lost_it(
    run_in: Callable[[str], Manifest], operate: Bound
) -> None:
    change = operate(Operation.CANCEL, run_in("IN_PROGRESS"))

    run = change.manifest
    assert (run.status, run.cancelled, run.position.lease) == ("PENDING", True, None)
    assert (run.position.last_settlement.lease_id, run.position.last_settlement.outcome) == (
        "lease-1",
        "cancelled",
    )
    assert change.owed == (ARCHIVE,)
    assert [(event.type, event.reason) for event in change.events] == [
        ("run_cancelled", "because"),
        ("step_terminated", "cancelled"),
    ]


def test_the_end_of_a_cancelled_attempt_names_who_had_it(
    run_in: Callable[[str], Manifest], operate: Bound, at: At
) -> None:
    event = operate(Operation.CANCEL, run_in("IN_PROGRESS")).events[1].model_dump()

    assert event["holder"] == "host-a"
    assert (event["lastHeartbeatAt"], event["leaseExpiresAt"]) == (at(0), at(30))


def test_a_cancelled_run_is_not_paused_any_more(
    run_in: Callable[[str], Manifest], operate: Bound
) -> None:
    assert operate(Operation.CANCEL, run_in("ERROR+paused")).manifest.paused is False


# -- retry and approve -------------------------------------------------------------------------


def test_a_retry_does_not_wait_for_the_backoff(
    run_in: Callable[[str], Manifest], operate: Bound, at: At
) -> None:
    change = operate(Operation.RETRY, run_in("ERROR"))

    run = change.manifest
    assert (run.status, run.position.dispatch.generation, run.position.dispatch.not_before) == (
        "PENDING",
        3,
        at(8),
    )
    assert run.position.attempts.failed == 1


def test_a_retry_of_a_person_begins_to_count_anew(runs: Runs, operate: Bound) -> None:
    """Else the very next failure would give the run up."""
    failed = at_position(runs.failed(), failures=2)

    retried = operate(Operation.RETRY, failed).manifest

    assert (failed.position.failures, retried.position.failures) == (2, 0)


def test_the_next_step_is_given_the_output_that_a_person_has_edited(runs: Runs, at: At) -> None:
    edited = KeptValue(text='"Dear Grace"')

    approved = lifecycle.approve(
        runs.blocked(), at(6), rules=runs.rules, actor="ada", reason="", edited=edited
    ).manifest

    assert (approved.current_step, approved.given) == ("send", edited)


def test_a_retry_of_a_blocked_step_drops_what_was_kept(
    run_in: Callable[[str], Manifest], operate: Bound
) -> None:
    """Else the trace and the lists would show an output that was not approved."""
    run = operate(Operation.RETRY, run_in("BLOCKED/kept")).manifest

    record = run.steps["draft"]
    assert (run.status, run.block, record.status) == ("PENDING", None, "PENDING")
    assert (record.kept_output, record.output_status) == (None, None)
    assert (record.completed_at, record.execution_seconds) == (None, None)


def test_a_retry_once_the_step_is_known_again_goes_on(
    run_in: Callable[[str], Manifest], operate: Bound
) -> None:
    change = operate(Operation.RETRY, run_in("BLOCKED/unknown"))

    assert (change.manifest.status, change.manifest.block) == ("PENDING", None)
    assert [task.generation for task in change.owed] == [3]


def test_a_retry_while_the_step_is_still_unknown_is_left_to_those_who_know_it(
    runs: Runs, run_in: Callable[[str], Manifest], operate: Bound
) -> None:
    """A command and the workers may have different catalogs; the sweep knows the steps."""
    change = operate(Operation.RETRY, run_in("BLOCKED/unknown"), rules=runs.knowing_nothing())

    assert (change.outcome, change.manifest.status) == (Outcome.RETRIED, "PENDING")
    assert runs.swept_unknown(change.manifest).manifest.status == "BLOCKED"


def test_an_approved_output_is_handed_off(
    run_in: Callable[[str], Manifest], operate: Bound
) -> None:
    change = operate(Operation.APPROVE, run_in("BLOCKED/kept"))

    run = change.manifest
    assert (run.status, run.current_step, run.block) == ("PENDING", "send", None)
    assert run.given.text == '"Hi"'
    assert [task.generation for task in change.owed] == [3]


def test_an_approved_last_output_completes_the_run(runs: Runs, operate: Bound) -> None:
    run = runs.blocked(runs.leased(runs.handed_off(), at=5, lease_id="lease-2"))

    change = operate(Operation.APPROVE, run)

    assert (change.outcome, change.manifest.status) == (Outcome.COMPLETED, "COMPLETED")


@pytest.mark.parametrize(
    ("operation", "state", "step"),
    [
        (Operation.RETRY, "ERROR+paused", "draft"),
        (Operation.RETRY, "BLOCKED/kept+paused", "draft"),
        (Operation.APPROVE, "BLOCKED/kept+paused", "send"),
    ],
)
def test_a_paused_run_moves_but_is_dispatched_only_when_it_is_resumed(
    run_in: Callable[[str], Manifest],
    operate: Bound,
    operation: Operation,
    state: str,
    step: str,
) -> None:
    change = operate(operation, run_in(state))

    run = change.manifest
    assert (run.status, run.current_step, run.paused) == ("PENDING", step, True)
    assert (run.alarm_at, change.owed) == (None, ())
    assert operate(Operation.RESUME, run).manifest.position.dispatch.step == step


# -- recreate ----------------------------------------------------------------------------------


def test_a_recreated_run_keeps_the_outputs_before_its_step(
    runs: Runs, operate: Bound, at: At
) -> None:
    run = runs.completed()

    change = operate(Operation.RECREATE, run, from_step="send")

    created = change.created
    assert (created.run_id, created.recreated_from) == ("r-2", "r-1")
    assert (created.status, created.current_step, created.created_at) == ("PENDING", "send", at(8))
    assert created.given.text == '"Dear Ada"'
    assert created.steps["draft"] == run.steps["draft"]
    assert created.steps["send"].status is RunStatus.PENDING
    assert created.steps["send"].kept_output is None
    assert (created.position.dispatch.generation, created.fencing_token) == (1, 0)
    tasks = [task for task in change.owed if isinstance(task, Task)]
    assert [(task.run_id, task.generation) for task in tasks] == [("r-2", 1)]


def test_the_old_run_names_the_new_one_and_stays_as_it_was(
    runs: Runs, operate: Bound, at: At
) -> None:
    run = runs.archived(runs.completed())

    after = operate(Operation.RECREATE, run).manifest

    assert after.recreated_as == ("r-2",)
    unchanged = replace(after, recreated_as=(), updated_at=run.updated_at, traced=run.traced)
    assert unchanged == run


@pytest.mark.parametrize(
    ("state", "from_step", "allowed"),
    [
        ("COMPLETED", "print", "draft, send (no such step)"),
        ("ERROR+cancelled", "send", "draft (step draft handed no output on)"),
        ("BLOCKED/kept+cancelled", "send", "draft (step draft handed no output on)"),
    ],
    ids=["no such step", "nothing before it", "a gate refused what was before it"],
)
def test_a_run_is_recreated_only_behind_outputs_that_were_handed_off(
    run_in: Callable[[str], Manifest],
    operate: Bound,
    state: str,
    from_step: str,
    allowed: str,
) -> None:
    """An output that a gate refused must not slip past it."""
    with pytest.raises(InvalidRequestError) as refused:
        operate(Operation.RECREATE, run_in(state), from_step=from_step)

    assert refused.value.details == {"field": "fromStep", "value": from_step, "allowed": allowed}


def test_a_run_is_not_recreated_at_a_step_that_is_not_known(runs: Runs, operate: Bound) -> None:
    with pytest.raises(UnknownKeyError):
        operate(Operation.RECREATE, runs.completed(), rules=runs.knowing_nothing())


def test_recreating_needs_the_right_facts_only_once_it_is_allowed(
    runs: Runs, operate: Bound
) -> None:
    """An impossible request is refused as impossible first."""
    with pytest.raises(NotAllowedError):
        operate(Operation.RECREATE, runs.pending(), from_step="nowhere")


def test_a_run_may_be_recreated_more_than_once(runs: Runs, operate: Bound) -> None:
    run = operate(Operation.RECREATE, runs.completed()).manifest

    again = operate(Operation.RECREATE, run, new=runs.new("r-3"))

    assert again.manifest.recreated_as == ("r-2", "r-3")
