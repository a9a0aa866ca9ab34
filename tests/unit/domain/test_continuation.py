"""An attempt that ends for the next one to go on: no retry is used up, progress is the bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import CallCount
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.notes import Notes
from leasehold.domain.status import Outcome, RunStatus
from leasehold.domain.stored import replace
from leasehold.errors import LeaseLostError
from tests.unit.domain.conftest import START
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import at_position, rules_of, step_settings


def continued(runs: Runs, run: Manifest, *, at: float = 5, at_checkpoint: bool = False) -> Change:
    return lifecycle.continue_later(
        run, runs.at(at), rules=runs.rules, fence=runs.fence(run), at_checkpoint=at_checkpoint
    )


def test_the_next_attempt_is_dispatched_at_once_and_no_retry_is_used_up(runs: Runs, at: At) -> None:
    run = runs.checkpointed(runs.leased(), at=4)

    change = continued(runs, run, at_checkpoint=True)

    after = change.manifest
    assert change.outcome is Outcome.CONTINUED
    assert (after.status, after.position.lease, after.position.attempt) == ("PENDING", None, 2)
    assert (after.position.dispatch.generation, after.position.dispatch.not_before) == (2, at(5))
    assert (
        after.position.attempts.continued,
        after.position.attempts.failed,
        after.position.interruptions,
    ) == (1, 0, 0)
    assert (after.position.continuations, after.error) == (1, None)
    assert after.position.checkpoint == run.position.checkpoint
    assert [task.generation for task in change.owed] == [2]
    (event,) = change.events
    assert event.model_dump(exclude_none=True) == {
        "type": "step_continued",
        "at": at(5),
        "step": "draft",
        "trial": 1,
        "attempt": 1,
        "detail": (
            "The time of the attempt was short at a checkpoint; the next one goes on from there."
        ),
        "holder": "host-a",
        "executionSeconds": 5.0,
        "phase": "read",
        "iterationCount": 3,
    }


def test_the_trace_says_that_the_handler_asked_for_it(runs: Runs) -> None:
    (event,) = continued(runs, runs.leased()).events

    assert event.detail == "The handler asked for the next attempt to go on."


def test_what_the_attempt_said_last_is_kept(runs: Runs, at: At) -> None:
    run = runs.leased()
    notes = Notes(Progress(fraction=0.5))

    change = lifecycle.continue_later(
        run, at(5), rules=runs.rules, fence=runs.fence(run), notes=notes
    )

    assert change.manifest.steps["draft"].progress == notes.progress


def test_a_call_that_only_its_end_tells_of_is_progress_too(runs: Runs) -> None:
    """A step without a heartbeat writes nothing while an attempt runs."""
    run = at_position(runs.leased(), continuations=2)
    notes = Notes(calls=CallCount(made=1), recorded_calls=1)

    change = lifecycle.continue_later(
        run, runs.at(5), rules=runs.rules, fence=runs.fence(run), notes=notes
    )

    assert (change.outcome, change.manifest.position.continuations) == (Outcome.CONTINUED, 1)


def test_a_paused_run_is_continued_once_it_is_resumed(runs: Runs) -> None:
    run = runs.paused(runs.checkpointed(runs.leased(), at=4))

    change = continued(runs, run, at=7)
    resumed = lifecycle.resume(
        change.manifest, runs.at(9), rules=runs.rules, actor="ada", reason=""
    ).manifest

    assert change.outcome is Outcome.CONTINUED
    assert (change.manifest.position.dispatch.generation, change.owed) == (1, ())
    assert (resumed.position.dispatch.generation, resumed.position.checkpoint) == (
        2,
        run.position.checkpoint,
    )


def test_a_cancelled_run_is_not_continued(runs: Runs) -> None:
    run = runs.leased()
    cancelled = runs.cancelled(run)

    change = lifecycle.continue_later(
        cancelled, runs.at(8), rules=runs.rules, fence=runs.fence(run)
    )

    assert (change.outcome, change.changed, change.manifest) == ("cancelled", False, cancelled)


def test_a_worker_that_lost_its_lease_continues_nothing(runs: Runs) -> None:
    run = runs.leased()

    with pytest.raises(LeaseLostError):
        lifecycle.continue_later(run, runs.at(5), rules=runs.rules, fence=Fence("another", 1))


def test_a_second_settlement_is_answered_as_the_first(runs: Runs, at: At) -> None:
    """Whatever it says: the answer to the first was lost."""
    run = runs.leased()
    after = continued(runs, run).manifest
    facts = {"rules": runs.rules, "fence": runs.fence(run)}

    again = lifecycle.continue_later(after, at(6), **facts)  # type: ignore[arg-type]
    other = lifecycle.fail(after, at(6), **facts, error=runs.error())  # type: ignore[arg-type]

    for answer in (again, other):
        assert (answer.outcome, answer.changed, answer.manifest) == ("continued", False, after)


def test_the_third_in_a_row_without_an_iteration_has_failed(runs: Runs, at: At) -> None:
    first = continued(runs, runs.checkpointed(runs.leased(), at=4)).manifest
    second = continued(runs, runs.leased(first, at=6, lease_id="lease-2"), at=7).manifest

    change = continued(runs, runs.leased(second, at=8, lease_id="lease-3"), at=9)

    run = change.manifest
    assert (first.position.continuations, second.position.continuations) == (1, 2)
    assert change.outcome is Outcome.RETRY_SCHEDULED
    assert (run.status, run.position.attempts.failed, run.position.attempts.continued) == (
        "ERROR",
        1,
        2,
    )
    assert run.position.dispatch.not_before == at(19)
    assert run.error is not None
    assert (run.error.code, run.error.step, run.error.attempt) == ("no_progress", "draft", 3)
    assert run.error.message == (
        "Step draft was continued 3 times in a row without a new iteration, the last time in "
        "attempt 3. Store more iterations (ctx.checkpoint) before ctx.continue_later, or make "
        "each iteration shorter than the agent timeout of 120 s."
    )
    assert [event.type for event in change.events] == ["step_error"]
    assert run.position.last_settlement is not None
    assert run.position.last_settlement.outcome is Outcome.RETRY_SCHEDULED


def test_each_further_one_has_failed_as_well_until_there_is_an_iteration(runs: Runs) -> None:
    run = runs.pending()
    ends = []
    for number in range(1, 7):
        run = runs.leased(run, at=100 * number, lease_id=f"lease-{number}")
        if number == 6:
            run = runs.checkpointed(run, at=100 * number + 1)
        change = continued(runs, run, at=100 * number + 2)
        ends.append(change.outcome.value)
        run = change.manifest
        if run.dead_lettered:
            break

    assert ends == ["continued", "continued", *["retry_scheduled"] * 2, "dead_lettered"]
    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"


def test_a_step_whose_checkpoints_are_rejected_again_and_again_comes_to_its_end(
    runs: Runs,
) -> None:
    """How far it was goes with a rejected checkpoint, so each attempt seems to make progress.

    As where each worker has an artifact store of its own.
    """
    run, ends = runs.pending(), []
    while not run.is_terminal and len(ends) < 20:
        begins = 1000 * len(ends)
        run = runs.leased(run, at=begins, lease_id=f"lease-{begins}")
        if run.position.checkpoint is not None:
            run = lifecycle.reject_checkpoint(
                run,
                runs.at(begins + 1),
                rules=runs.rules,
                fence=runs.fence(run),
                rejected=run.position.checkpoint,
                why="It is lost.",
            ).manifest
        change = continued(runs, runs.checkpointed(run, at=begins + 2), at=begins + 3)
        ends.append(change.outcome.value)
        run = change.manifest

    failed = ["retry_scheduled"] * 2 + ["dead_lettered"]
    assert ends == [*["continued"] * 5, *failed]  # three rejections cost it nothing
    assert run.error is not None
    assert run.error.code == "no_progress"


def test_a_person_who_retries_gives_it_new_ones(runs: Runs) -> None:
    run = runs.pending()
    for number in range(1, 4):
        run = runs.leased(run, at=10 * number, lease_id=f"lease-{number}")
        run = continued(runs, run, at=10 * number + 1).manifest

    again = lifecycle.retry(run, runs.at(40), rules=runs.rules, actor="ada", reason="").manifest

    assert (run.position.continuations, again.position.continuations) == (3, 0)


def test_the_next_step_begins_to_count_anew(runs: Runs) -> None:
    run = runs.leased(continued(runs, runs.leased()).manifest, at=6, lease_id="lease-2")

    assert runs.with_output(run, at=7).position.continuations == 0


@settings(deadline=None)  # a busy machine takes its time
@given(st.lists(st.integers(min_value=0, max_value=2), max_size=40))
def test_it_is_bounded_by_progress_alone(gains: list[int]) -> None:
    """Each number is how many new iterations an attempt makes before it is continued."""
    step = step_settings("draft", max_retries=1000)
    runs = Runs(rules_of(step, step_settings("send")), lambda _: START)
    run, done, in_a_row, failed = runs.pending(), 0, 0, 0
    for number, gain in enumerate(gains, 1):
        run = at_position(run, dispatch=replace(run.position.dispatch, not_before=START))
        run = runs.leased(run, lease_id=f"lease-{number}")
        for _ in range(gain):
            done += 1
            run = runs.checkpointed(run, at=0, iterations=done)
        in_a_row = 1 if gain else in_a_row + 1
        run = continued(runs, run).manifest
        failed += in_a_row >= 3
        expected = RunStatus.ERROR if in_a_row >= 3 else RunStatus.PENDING
        assert (run.status, run.position.attempts.failed) == (expected, failed)
        assert run.position.attempts.continued + failed == number
        assert not run.is_terminal
