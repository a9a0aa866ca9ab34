"""The lives of a run id: where each keeps its artifacts, and what of them is a run's own."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.artifact_name import (
    files_folder,
    folder_of_life,
    is_own_artifact,
    kind_folder,
    step_folder,
    values_folder,
)
from leasehold.domain.lifecycle.purge import goes_with, purge
from leasehold.domain.manifest import Manifest, manifest_of, to_document
from leasehold.errors import UnreadableRunError
from tests.unit.domain.runs import FOLDER, At, Runs


@pytest.fixture
def run(runs: Runs) -> Manifest:
    return runs.pending()


def test_each_life_has_its_own_folder(runs: Runs, run: Manifest) -> None:
    assert files_folder(run) == f"{FOLDER}/files"
    assert values_folder(run) == f"{FOLDER}/values"
    assert step_folder(run, "draft", 2) == f"{FOLDER}/checkpoints/draft-2"
    assert values_folder(runs.new(nonce="another")) != values_folder(run)
    assert values_folder(runs.new()) == values_folder(run)
    assert folder_of_life(run) == FOLDER


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        (f"{FOLDER}/checkpoints/draft-1/1-a.json.gz", True),
        ("runs/r-1/checkpoints/draft-1/1-a.json.gz", False),
        ("runs/r-1/01234567/checkpoints/draft-1/1-a.json.gz", False),
        ("runs/r-2/checkpoints/draft-1/1-a.json.gz", False),
        ("runs/r-1/else/x", False),
        ("../runs/r-1/files/x", False),
    ],
)
def test_files_of_another_life_do_not_belong_to_the_run(
    run: Manifest, name: str, is_own: bool
) -> None:
    assert is_own_artifact(run, name) is is_own


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("runs/r-1/values/a", "runs/r-1/values"),
        (f"{FOLDER}/values/a", f"{FOLDER}/values"),
        (f"{FOLDER}/checkpoints/draft-1/a", f"{FOLDER}/checkpoints"),
        ("runs/r-1", "runs"),
        ("report", ""),
    ],
)
def test_the_folder_of_a_kind_is_known_by_the_name_of_one_of_it(name: str, folder: str) -> None:
    assert kind_folder(name) == folder


def test_a_run_whose_mark_is_another_ones_is_not_read(run: Manifest) -> None:
    """Else its document, edited or copied, would have the artifacts of another run deleted."""
    for mark in ("01234567", "../r-2", "x" * 300):
        document = {**to_document(run), "life": mark}
        with pytest.raises(UnreadableRunError, match="which is that of another run") as raised:
            manifest_of("r-1", document)
        assert len(str(raised.value)) < 400


@pytest.mark.parametrize("mark", [None, "own"])
def test_a_purge_deletes_everything_of_its_own_run(run: Manifest, at: At, mark: str | None) -> None:
    assert goes_with(run, mark and run.life, at(9))


def test_a_purge_deletes_the_rest_of_an_earlier_life_and_nothing_of_a_later_one(
    run: Manifest, at: At
) -> None:
    earlier = run.created_at - timedelta(seconds=1)

    assert goes_with(run, "another", earlier)
    assert goes_with(run, "another", earlier.isoformat())
    assert not goes_with(run, "another", run.created_at)
    assert not goes_with(run, "another", at(9))


def test_a_run_that_is_marked_is_marked_anew(runs: Runs, at: At) -> None:
    """By that the purge that marked it before, if it is at work still, finds out in any store."""
    ended, before = runs.archived(runs.cancelled(runs.pending())), at(100)
    marked = purge(ended, at(200), ended_before=before).manifest

    assert purge(marked, at(300), ended_before=before).manifest.purged_at == at(300)


@pytest.mark.parametrize("edited", ["soon", None, 7])
def test_a_purge_leaves_what_another_life_has_at_a_time_that_says_nothing(
    run: Manifest, edited: object
) -> None:
    assert not goes_with(run, "another", edited)
