"""The manifest as it is stored."""

from __future__ import annotations

import json

import pydantic_core
import pytest

from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.manifest import Manifest, manifest_of, to_document
from leasehold.domain.stored import replace
from leasehold.errors import UnreadableRunError
from tests.unit.domain.runs import At, Runs
from tests.worlds.builders import with_step

STATES = ["pending", "leased", "failed", "blocked", "unknown", "completed", "dead_lettered"]


@pytest.mark.parametrize("state", STATES)
def test_a_manifest_comes_back_from_json_as_it_was(runs: Runs, state: str) -> None:
    run = getattr(runs, state)()

    text = pydantic_core.to_json(to_document(run))

    assert Manifest.model_validate(json.loads(text)) == run


def test_fields_are_stored_in_lower_camel_case_and_without_nothings(runs: Runs) -> None:
    """It is what a person sees who opens the document."""
    document = to_document(runs.pending())

    assert sorted(document) == [
        "alarmAt",
        "cancelled",
        "createdAt",
        "currentStep",
        "deadLettered",
        "fencingToken",
        "hasFiles",
        "input",
        "inputDigest",
        "inputFiles",
        "labels",
        "life",
        "operations",
        "owed",
        "paused",
        "pipeline",
        "plan",
        "position",
        "recreatedAs",
        "runId",
        "shard",
        "status",
        "steps",
        "traced",
        "updatedAt",
    ]
    assert sorted(document["position"]) == [
        "attempts",
        "calls",
        "continuations",
        "dispatch",
        "failures",
        "interruptions",
        "recordedCalls",
        "silences",
        "step",
        "trial",
    ]


def test_fields_of_a_later_version_are_kept(runs: Runs, at: At) -> None:
    """An older worker of a rolling deploy must not lose what a newer one wrote."""
    stored = {**to_document(runs.pending()), "laterField": {"deep": [1]}}

    run = runs.leased(Manifest.model_validate(stored))

    assert to_document(run)["laterField"] == {"deep": [1]}


def test_the_first_step_is_given_the_input_of_the_run(runs: Runs) -> None:
    assert runs.pending().given == KeptValue(text='{"to":"ada"}')


def test_a_later_step_is_given_the_output_before_it_by_reference_too(runs: Runs) -> None:
    run = runs.handed_off()
    run = replace(run, steps=with_step(run, "draft", output=None, output_ref="runs/r-1/values/x"))

    assert run.given == KeptValue(ref="runs/r-1/values/x")


@pytest.mark.parametrize(
    ("state", "overlay", "expected"),
    [
        ("pending", None, "PENDING"),
        ("completed", None, "COMPLETED"),
        ("failed", "paused", "paused and ERROR"),
        ("leased", "cancelled", "cancelled and PENDING"),
        ("dead_lettered", None, "dead-lettered and ERROR"),
    ],
)
def test_the_state_of_a_run_is_said_with_its_overlays_first(
    runs: Runs, state: str, overlay: str | None, expected: str
) -> None:
    run = getattr(runs, state)()
    run = run if overlay is None else getattr(runs, overlay)(run)

    assert run.state == expected


def test_a_manifest_with_a_checkpoint_comes_back_from_json_as_it_was(runs: Runs) -> None:
    run = runs.checkpointed(runs.leased(), at=5)

    text = pydantic_core.to_json(to_document(run))

    assert Manifest.model_validate(json.loads(text)) == run
    assert json.loads(text)["position"]["checkpoint"] == {
        "step": "draft",
        "trial": 1,
        "phase": "read",
        "iterationCount": 3,
        "inline": '["Dear"]',
        "savedAt": "2026-01-01T12:00:05Z",
        "fencingToken": 1,
        "furthest": [{"phase": "read", "iterationCount": 3}],
    }


def test_replacing_fields_leaves_the_original_alone(runs: Runs) -> None:
    run = runs.pending()

    paused = replace(run, paused=True)

    assert (run.paused, paused.paused) == (False, True)
    assert paused == run.model_copy(update={"paused": True})


def test_a_document_that_says_it_is_another_run_is_none(runs: Runs) -> None:
    """A copy that was edited in a console would change the run it was copied from."""
    with pytest.raises(UnreadableRunError) as refused:
        manifest_of("r-2", to_document(runs.pending()))

    assert "its runId is 'r-1', which is not its name" in str(refused.value)


def test_an_edited_label_without_a_value_has_an_empty_one(runs: Runs) -> None:
    run = replace(runs.pending(), labels=("team:a:b", "team-b"))

    assert run.labels_by_name == {"team": "a:b", "team-b": ""}
