"""The pipeline `summary`, run by the engine in the test's own process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import testing
from pipelines import catalog, summary


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[testing.InProcessEngine]:
    """Give each test its own store, and time that stands still."""
    with testing.engine(catalog, tmp_path) as engine:
        yield engine


def test_a_document_is_summarized(engine: testing.InProcessEngine) -> None:
    run = engine.run("summary", summary.Document(text="One. Two."))

    assert run.status == "COMPLETED"
    assert engine.output(run.run_id, model=summary.Summary).text == "One; Two"


def test_a_document_without_a_sentence_waits_for_a_person(
    engine: testing.InProcessEngine,
) -> None:
    run = engine.run("summary", summary.Document(text=" "))

    assert run.status == "BLOCKED"


def test_a_worker_that_is_killed_does_not_end_the_run(engine: testing.InProcessEngine) -> None:
    engine.faults.kill_at_checkpoint("outline", n=1)
    run = engine.start("summary", summary.Document(text="One. Two."))

    done = engine.run_until_settled(run.run_id)

    assert done.status == "COMPLETED"
    assert done.steps["outline"].attempts.expired == 1  # the second attempt went on
