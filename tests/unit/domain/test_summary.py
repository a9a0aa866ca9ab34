"""A run in one line."""

from __future__ import annotations

import pytest

from leasehold.domain.manifest import to_document
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.stored import replace
from leasehold.domain.summary import RunProgress, progress_of, summary_of
from tests.unit.domain.runs import Runs
from tests.worlds.builders import with_step


@pytest.mark.parametrize(
    ("state", "done", "fraction"),
    [
        ("pending", 0, 0.0),
        ("blocked", 0, 0.0),
        ("handed_off", 1, 0.5),
        ("completed", 2, 1.0),
        ("dead_lettered", 0, 0.0),
    ],
)
def test_progress_counts_the_steps_that_were_handed_off(
    runs: Runs, state: str, done: int, fraction: float
) -> None:
    """An output that a gate refused is kept, but not done."""
    progress = progress_of(getattr(runs, state)())

    assert progress == RunProgress(steps_done=done, steps=2, fraction=fraction, message="")


def test_what_a_running_handler_says_counts_as_a_share_of_its_step(runs: Runs) -> None:
    run = runs.leased(runs.handed_off(), at=6, lease_id="lease-2")
    latest = Progress(fraction=0.5, message="page 3")

    progress = progress_of(replace(run, steps=with_step(run, "send", progress=latest)))

    assert (progress.fraction, progress.message) == (0.75, "page 3")


def test_what_an_attempt_said_that_failed_does_not_count(runs: Runs) -> None:
    latest = Progress(fraction=0.9, message="almost")
    run = runs.failed()

    progress = progress_of(replace(run, steps=with_step(run, "draft", progress=latest)))

    assert (progress.fraction, progress.message) == (0.0, "")


def test_the_next_attempt_begins_its_progress_anew(runs: Runs) -> None:
    latest = Progress(fraction=0.9, message="almost")
    run = runs.failed()
    run = replace(run, steps=with_step(run, "draft", progress=latest))

    again = runs.leased(run, at=15, lease_id="lease-2")

    assert again.steps["draft"].progress is None


def test_a_summary_leaves_out_what_users_put_in(runs: Runs) -> None:
    """Lists are read by many; inputs and outputs are not for all of them."""
    fields = set(to_document(summary_of(runs.completed())))

    assert fields == {
        "runId",
        "pipeline",
        "status",
        "currentStep",
        "createdAt",
        "updatedAt",
        "completedAt",
        "paused",
        "cancelled",
        "deadLettered",
        "attempts",
        "progress",
        "labels",
        "generation",
    }
