"""The pipeline `summary`, run by the engine in the test's own process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.testing import FrozenClock, InProcessEngine
from pipelines.catalog import GATES, PIPELINES, STEPS


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[InProcessEngine]:
    """Give each test a store of its own, and time that stands still."""
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{tmp_path}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
    }
    with InProcessEngine(
        STEPS, PIPELINES, GATES, environ=environ, clock=FrozenClock(), workers=0
    ) as engine:
        yield engine


def test_a_document_is_summarized(engine: InProcessEngine) -> None:
    run = engine.run("summary", {"text": "One. Two."})

    assert run.status == "COMPLETED"
    assert run.steps["summarize"].output == '{"text":"One; Two"}'


def test_a_document_without_a_sentence_waits_for_a_person(engine: InProcessEngine) -> None:
    run = engine.run("summary", {"text": " "})

    assert run.status == "BLOCKED"
