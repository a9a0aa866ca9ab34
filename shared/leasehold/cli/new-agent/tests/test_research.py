"""The pipeline `research`, run by the engine in the test's own process, with a fake model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_ai.models.test import TestModel

from leasehold import testing
from pipelines import catalog, research

QUESTION = research.Question(text="What is a lease?")


@pytest.fixture(autouse=True)
def model() -> Iterator[None]:
    """Have the agent call each tool once, and answer, without a real model."""
    with research.researcher.override(model=TestModel(custom_output_text="It ends soon.")):
        yield


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[testing.InProcessEngine]:
    """Give each test its own store, and time that stands still."""
    with testing.engine(catalog, tmp_path) as engine:
        yield engine


def test_a_question_is_answered(engine: testing.InProcessEngine) -> None:
    run = engine.run("research", QUESTION)

    assert run.status == "COMPLETED"
    assert engine.output(run.run_id, model=research.Report).text == "It ends soon."


def test_a_worker_that_is_killed_repeats_no_recorded_call(
    engine: testing.InProcessEngine,
) -> None:
    engine.faults.kill_at_call("research", n=3)
    run = engine.start("research", QUESTION)

    done = engine.run_until_settled(run.run_id)

    assert done.status == "COMPLETED"
    assert done.steps["research"].attempts.expired == 1  # the second attempt went on
    calls = done.steps["research"].calls
    assert calls is not None
    assert (calls.made, calls.spared) == (4, 3)  # two requests of the model, and two tools
