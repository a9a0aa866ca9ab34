"""How the values of a run are copied and stored."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime

import pydantic_core
import pytest

from leasehold.domain.collections import RUNS
from leasehold.domain.manifest import Manifest, manifest_of, to_document
from leasehold.domain.manifest_parts import TrialRecord
from leasehold.domain.stored import StoredDocument, make, replace
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


def test_a_copy_has_the_fields_that_were_replaced_and_shares_the_others(runs: Runs) -> None:
    run = Manifest.model_validate({**to_document(runs.leased()), "laterField": {"deep": [1]}})
    before = run.model_copy(deep=True)

    copy = replace(run, paused=True)

    assert (copy.paused, copy.steps is run.steps) == (True, True)
    assert to_document(copy) == {**to_document(run), "paused": True}
    assert run == before


def test_a_value_that_is_made_is_the_one_that_its_model_makes() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    fields = {"trial": 2, "verdict": None}

    made = make(TrialRecord, started_at=at, **fields)

    assert made == TrialRecord(started_at=at, **fields)
    assert to_document(made) == to_document(TrialRecord(started_at=at, **fields))


def test_an_attribute_of_a_value_is_looked_up_once(runs: Runs) -> None:
    """A class with a `__getattr__` is asked for it first: hundreds of times in each step."""
    assert not hasattr(type(runs.leased()), "__getattr__")


@pytest.mark.parametrize("state", STATES)
def test_a_value_can_be_pickled_and_is_equal_then(runs: Runs, state: str) -> None:
    run = Manifest.model_validate({**to_document(getattr(runs, state)()), "laterField": [1]})

    assert pickle.loads(pickle.dumps(run)) == run  # noqa: S301 - our own
    assert run.model_extra == {"laterField": [1]}


def test_a_value_cannot_be_changed(runs: Runs) -> None:
    run = runs.pending()

    with pytest.raises(FrozenInstanceError):
        run.paused = True  # type: ignore[misc] # what is tested
    with pytest.raises(FrozenInstanceError):
        del run.paused

    assert run.paused is False


def test_any_other_dataclass_is_copied_too(runs: Runs) -> None:
    rules = replace(runs.rules, max_interruptions=7)

    assert (rules.max_interruptions, rules.grace) == (7, runs.rules.grace)
