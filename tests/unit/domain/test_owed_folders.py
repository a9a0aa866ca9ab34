"""Folders of temporary files: which of them a run owes to delete, and when it owes none."""

from __future__ import annotations

from functools import partial

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.dispatch import Rules
from leasehold.domain.effect import Deletion, left_behind, owed_effects
from leasehold.domain.explanation import explain
from leasehold.domain.kept_value import KeptValue
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.status import Outcome
from tests.unit.domain.runs import At, Runs

DRAFT = "runs/r-1/checkpoints/draft-1"
SEND = "runs/r-1/checkpoints/send-1"
LARGE = KeptValue(ref=f"{DRAFT}/1-id.json.gz", digest="d")
HOUR = 3600


def with_file(runs: Runs, run: Manifest, *, at: float = 1) -> Manifest:
    """The run whose attempt keeps large results."""
    return lifecycle.checkpoint(
        run,
        runs.at(at),
        rules=runs.rules,
        fence=runs.fence(run),
        iteration_count=1,
        phase="",
        partial_results=LARGE,
    ).manifest


@pytest.fixture
def large(runs: Runs) -> Manifest:
    return with_file(runs, runs.leased())


@pytest.fixture
def completed(runs: Runs, large: Manifest) -> Manifest:
    """Both steps are done, and draft had a file; 5 and 9 s after the start."""
    sending = runs.leased(runs.with_output(large, at=5), at=6, lease_id="lease-2")
    return runs.with_output(sending, at=9)


def test_the_first_file_of_a_step_has_the_run_owe_its_folder(runs: Runs, large: Manifest) -> None:
    assert large.owed == (DRAFT,)
    assert with_file(runs, large, at=2).owed == (DRAFT,)
    assert large.checkpoint.ref == f"{DRAFT}/1-id.json"
    assert large.checkpoint.partial_results == LARGE


def test_small_results_leave_nothing_to_delete(runs: Runs) -> None:
    run = runs.checkpointed(runs.leased(), at=1)

    assert run.owed == ()


def test_an_attempt_that_fell_silent_may_have_left_a_file(runs: Runs, at: At) -> None:
    expired = lifecycle.expire(runs.leased(), at(30), rules=runs.rules, lease_id="lease-1")

    assert expired.manifest.owed == (DRAFT,)


def test_a_folder_is_not_deleted_while_its_step_is_not_over(runs: Runs, large: Manifest) -> None:
    assert owed_effects(large) == ()
    failed = runs.failed(large)
    assert [type(effect).__name__ for effect in owed_effects(failed)] == ["Task"]


def test_with_the_hand_off_it_is_deleted_after_the_task_is_created(
    runs: Runs, large: Manifest
) -> None:
    run = runs.with_output(large, at=5)

    task, deletion = owed_effects(run)
    assert type(task).__name__ == "Task"
    assert deletion == Deletion("r-1", (DRAFT,), is_last=False)


def test_while_somebody_works_it_is_for_that_worker_to_delete(runs: Runs, large: Manifest) -> None:
    run = runs.leased(runs.with_output(large, at=5), at=6, lease_id="lease-2")

    assert owed_effects(run) == ()
    assert left_behind(run) == (Deletion("r-1", (DRAFT,), is_last=False),)


def test_an_idle_run_has_no_alarm_for_it_until_it_ends(runs: Runs, large: Manifest) -> None:
    """A person may let it wait for weeks; the sweep has nothing to do meanwhile."""
    paused = runs.paused(runs.with_output(large, at=5))

    assert paused.alarm_at is None


def test_a_run_that_ended_is_looked_at_an_hour_later(
    runs: Runs, rules: Rules, completed: Manifest, at: At
) -> None:
    assert owed_effects(completed) == (Deletion("r-1", (DRAFT,), is_last=True),)
    assert completed.alarm_at == at(9 + HOUR)
    assert not completed.is_moving
    assert not list(lifecycle.breaches(completed, at(10), rules))


def test_at_its_alarm_it_is_deleted_again_and_in_an_hour_once_more(
    runs: Runs, rules: Rules, completed: Manifest, at: At
) -> None:
    on_alarm = partial(lifecycle.on_alarm, rules=rules, generation=1, in_queue=False)

    assert on_alarm(completed, at(8 + HOUR)).outcome is Outcome.NOT_DUE
    change = on_alarm(completed, at(9 + HOUR))

    assert change.outcome is Outcome.REPUBLISHED
    assert change.owed == (Deletion("r-1", (DRAFT,), is_last=True),)
    assert change.manifest.alarm_at == at(9 + 2 * HOUR)


def test_once_it_is_deleted_the_run_owes_nothing(rules: Rules, completed: Manifest, at: At) -> None:
    change = lifecycle.note_deleted(completed, at(10), rules=rules)

    assert change.outcome is Outcome.TIDIED
    assert (change.manifest.owed, change.manifest.alarm_at, change.owed) == ((), None, ())
    again = lifecycle.note_deleted(change.manifest, at(11), rules=rules)
    assert not again.changed


def test_a_live_run_owes_it_until_it_ends(
    rules: Rules, runs: Runs, large: Manifest, at: At
) -> None:
    assert not lifecycle.note_deleted(large, at(2), rules=rules).changed


@pytest.mark.parametrize("end", ["cancelled", "silent"])
def test_a_worker_that_was_not_heard_to_end_may_write_for_an_hour(
    runs: Runs, rules: Rules, large: Manifest, at: At, end: str
) -> None:
    """Its file is refused, and it deletes it; where it is killed before that the sweep does."""
    if end == "cancelled":
        run = runs.cancelled(large)
    else:
        run = lifecycle.expire(
            large.with_(interruptions=9), at(31), rules=rules, lease_id="lease-1"
        ).manifest
    assert run.is_terminal

    assert not lifecycle.note_deleted(run, at(60), rules=rules).changed
    assert lifecycle.note_deleted(run, at(31 + HOUR), rules=rules).manifest.alarm_at is None


def test_a_failure_that_gives_the_run_up_was_heard(
    runs: Runs, rules: Rules, large: Manifest
) -> None:
    run = lifecycle.fail(
        large,
        runs.at(5),
        rules=rules,
        fence=runs.fence(large),
        error=ErrorRecord(type="E", code="e", message="m"),
        permanent=True,
    ).manifest

    assert lifecycle.note_deleted(run, runs.at(6), rules=rules).changed


@pytest.mark.parametrize(
    "folder", ["runs/r-2/checkpoints/draft-1", "runs/r-1/files", f"{DRAFT}/../../../r-2", ""]
)
def test_nothing_is_deleted_that_is_none_of_the_runs_temporary_files(
    completed: Manifest, folder: str
) -> None:
    """Whatever wrote the manifest; what is owed and cannot be deleted is forgotten."""
    run = completed.with_(owed=(folder, SEND))

    assert owed_effects(run) == (Deletion("r-1", (SEND,), is_last=True),)


def test_an_alarm_that_is_missing_is_found_and_set(
    rules: Rules, completed: Manifest, at: At
) -> None:
    """A version that knows nothing of it may have ended the run."""
    run = completed.with_(alarm_at=None)

    (breach,) = lifecycle.breaches(run, at(20), rules)
    change = lifecycle.on_audit(run, at(20), rules=rules, generation=1, in_queue=False)

    assert breach.finding == "It is COMPLETED, and owes its deletion, and has no alarm."
    assert change.manifest.alarm_at == at(20 + HOUR)


def test_it_may_be_purged_with_all_that_it_left(completed: Manifest, at: At) -> None:
    assert lifecycle.is_purgeable(completed, at(10))


def test_why_says_that_the_run_is_over_and_when_its_files_go(
    rules: Rules, completed: Manifest, at: At
) -> None:
    found = explain(completed, at(20), rules)

    assert (found.what, found.until) == (None, None)
    assert found.words == (
        "Run r-1 waits for nothing: it is completed. "
        "Temporary files that it left are deleted at 2026-01-01T13:00:09Z at the latest."
    )
