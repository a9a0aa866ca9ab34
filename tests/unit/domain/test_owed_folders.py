"""Folders of temporary files: which of them a run owes to delete, and when it owes none."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.effect import Deletion, left_behind, owed_effects
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from tests.unit.domain.runs import ARCHIVE, FOLDER, At, Runs
from tests.worlds.builders import at_position

DRAFT = f"{FOLDER}/checkpoints/draft-1"
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
    assert large.position.checkpoint.ref == f"{DRAFT}/1-id.json"
    assert large.position.checkpoint.partial_results == LARGE


def test_small_results_leave_nothing_to_delete(runs: Runs) -> None:
    run = runs.checkpointed(runs.leased(), at=1)

    assert run.owed == ()


def test_an_attempt_that_fell_silent_may_have_left_a_file(runs: Runs, at: At) -> None:
    expired = lifecycle.expire(runs.leased(), at(30), rules=runs.rules, lease_id="lease-1")

    assert expired.manifest.owed == (DRAFT, DRAFT.replace("checkpoints", "calls"))


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
    assert deletion == Deletion("r-1", (DRAFT,))


def test_while_a_worker_holds_the_run_it_deletes_the_folder(runs: Runs, large: Manifest) -> None:
    run = runs.leased(runs.with_output(large, at=5), at=6, lease_id="lease-2")

    assert owed_effects(run) == ()
    assert left_behind(run) == (Deletion("r-1", (DRAFT,)),)


def test_an_idle_run_has_no_alarm_for_it_until_it_ends(runs: Runs, large: Manifest) -> None:
    """A person may let it wait for weeks; the sweep has nothing to do meanwhile."""
    paused = runs.paused(runs.with_output(large, at=5))

    assert paused.alarm_at is None


def test_a_run_that_ended_deletes_them_with_its_archive(completed: Manifest) -> None:
    assert owed_effects(completed) == (ARCHIVE,)


def test_of_a_live_run_no_archive_is_noted(runs: Runs, large: Manifest) -> None:
    assert not runs.archive_noted(large, at=2).changed


@pytest.mark.parametrize("end", ["cancelled", "silent"])
def test_a_worker_that_was_not_heard_to_end_may_write_for_an_hour(
    runs: Runs, large: Manifest, at: At, end: str
) -> None:
    """Its file is refused, and it deletes it; where it is killed before that the sweep does."""
    if end == "cancelled":
        run = runs.cancelled(large)
    else:
        run = lifecycle.expire(
            at_position(large, interruptions=9), at(31), rules=runs.rules, lease_id="lease-1"
        ).manifest
    assert run.is_terminal
    assert run.position.heartbeat_at is not None

    later = runs.archive_noted(run, at=60)

    assert later.outcome is Outcome.ARCHIVE_OWED
    assert DRAFT in later.manifest.owed
    assert later.manifest.alarm_at == run.position.heartbeat_at + timedelta(hours=1)
    assert runs.archived(later.manifest, at=31 + HOUR).alarm_at is None


def test_a_failure_that_gives_the_run_up_was_heard(runs: Runs, large: Manifest) -> None:
    run = lifecycle.fail(
        large,
        runs.at(5),
        rules=runs.rules,
        fence=runs.fence(large),
        error=ErrorRecord(type="E", code="e", message="m"),
        permanent=True,
    ).manifest

    assert runs.archived(run, at=6).owed == ()


@pytest.mark.parametrize(
    "folder",
    [
        "runs/r-2/checkpoints/draft-1",
        "runs/r-1/01234567/checkpoints/draft-1",
        "runs/r-1/files",
        f"{DRAFT}/../../../r-2",
        "",
    ],
)
def test_only_temporary_files_of_the_run_are_deleted(
    runs: Runs, large: Manifest, folder: str
) -> None:
    """Whatever wrote the manifest."""
    run = replace(runs.with_output(large, at=5), owed=(folder,))

    assert owed_effects(run)[1:] == (Deletion("r-1", ()),)


def test_what_a_remote_worker_is_given_may_leave_a_file_from_then_on(elsewhere: Runs) -> None:
    """The process that takes its checkpoint may be killed before the commit."""
    assert elsewhere.claimed().owed == (DRAFT,)
