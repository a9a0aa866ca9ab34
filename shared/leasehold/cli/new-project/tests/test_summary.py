"""The pipeline `summary`, run by the engine in the test's own process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pipelines.summary import Document, Summary

from leasehold import testing
from pipelines import catalog


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[testing.InProcessEngine]:
    """Give each test a store of its own, and time that stands still."""
    with testing.engine(catalog, tmp_path) as engine:
        yield engine


def test_a_document_is_summarized(engine: testing.InProcessEngine) -> None:
    run = engine.run("summary", Document(text="One. Two."))

    assert run.status == "COMPLETED"
    assert engine.output(run.run_id, model=Summary) == Summary(text="One; Two")


def test_a_document_without_a_sentence_waits_for_a_person(engine: testing.InProcessEngine) -> None:
    run = engine.run("summary", Document(text=" "))

    assert run.status == "BLOCKED"
