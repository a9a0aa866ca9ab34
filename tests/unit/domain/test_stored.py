"""How the values of a run are copied and stored."""

from __future__ import annotations

import json

import pydantic_core
import pytest

from leasehold.domain.collections import RUNS
from leasehold.domain.manifest import Manifest, manifest_of, to_document
from leasehold.domain.stored import StoredDocument
from tests.unit.domain.runs import Runs

STATES = ["pending", "leased", "failed", "blocked", "unknown", "completed", "dead_lettered"]


@pytest.mark.parametrize("state", STATES)
def test_the_json_text_of_a_value_is_that_of_its_document(runs: Runs, state: str) -> None:
    """To the byte: earlier versions wrote the one, and this one writes the other."""
    run = getattr(runs, state)()

    text = StoredDocument(run).to_json()

    assert text == pydantic_core.to_json(to_document(run)).decode()
    assert manifest_of(run.run_id, json.loads(text)) == run


def test_a_field_of_a_later_version_is_in_the_json_text(runs: Runs) -> None:
    run = Manifest.model_validate({**to_document(runs.pending()), "laterField": {"deep": [1]}})

    document = StoredDocument(run)

    assert json.loads(document.to_json())["laterField"] == {"deep": [1]}
    assert document["laterField"] == {"deep": [1]}


@pytest.mark.parametrize("state", STATES)
def test_a_value_is_found_by_what_its_document_holds(runs: Runs, state: str) -> None:
    run = getattr(runs, state)()

    picked = StoredDocument(run).pick(RUNS.fields)

    assert picked == tuple(to_document(run).get(field) for field in RUNS.fields)


def test_a_value_reads_as_the_document_it_is_stored_as(runs: Runs) -> None:
    run = runs.leased()

    document = StoredDocument(run)

    assert document == to_document(run)
    assert document["position"]["lease"]["leaseId"] == run.position.lease.lease_id  # type: ignore[union-attr] # leased
    assert "completedAt" not in document


def test_a_value_that_was_just_written_is_not_read_again(runs: Runs) -> None:
    run = runs.pending()

    assert manifest_of(run.run_id, StoredDocument(run)) is run
