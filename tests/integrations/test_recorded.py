"""What agents call in a step is recorded: an attempt that comes later makes no call again."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold.testing import InProcessEngine
from tests.integrations.conftest import HERE
from tests.integrations.played import output_of, played

#: The scenes of the library whose environment this is.
scenes: Final[Any] = importlib.import_module(f"tests.integrations.{HERE}.scenes")

#: What a library does itself, where an agent is a tool.
pytestmark = pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")


@pytest.mark.parametrize(("scene", "made", "output"), scenes.PLAYED)
def test_an_attempt_that_comes_later_makes_no_call_again(
    engine: InProcessEngine, tmp_path: Path, scene: str, made: list[str], output: object
) -> None:
    run = played(engine, scene, tmp_path, fails=2)

    assert (run.status, output_of(run)) == ("COMPLETED", output)
    assert sorted(scenes.MADE) == sorted(made)


@pytest.mark.parametrize("scene", scenes.ODD)
def test_a_result_that_cannot_be_recorded_blocks_the_run_and_is_not_told_to_the_model(
    engine: InProcessEngine, tmp_path: Path, scene: str
) -> None:
    run = played(engine, scene, tmp_path)

    assert (run.status, set(scenes.MADE)) == ("BLOCKED", {"agent 1", "odd 1"})
    assert run.error is not None
    assert run.error.code == "unrestorable_result"


@pytest.mark.parametrize("scene", ["plain", "streamed"])
def test_an_outage_of_the_store_defers_the_attempt(
    engine: InProcessEngine, tmp_path: Path, scene: str
) -> None:
    """It is no error of a tool, and the model gets none."""
    scenes.DOES.append(lambda: engine.faults.store_away(27))  # it ends before its lease, of 30 s
    run = played(engine, scene, tmp_path)

    attempts = run.steps["scene"].attempts
    assert (run.status, attempts.deferred, attempts.failed) == ("COMPLETED", 1, 0)
    assert "page 0" in str(output_of(run))


@pytest.mark.parametrize("scene", ["plain", "streamed"])
def test_an_agent_that_takes_longer_than_an_attempt_goes_on_in_the_next_one(
    engine: InProcessEngine, tmp_path: Path, scene: str
) -> None:
    scenes.DOES.extend([lambda: engine.advance(40)] * 9)
    run = played(engine, scene, tmp_path, pages=9)

    attempts = run.steps["scene"].attempts
    assert (run.status, attempts.failed, attempts.expired) == ("COMPLETED", 0, 0)
    assert attempts.continued > 0
    assert len(scenes.MADE) == len(set(scenes.MADE))
    assert {*(f"agent {turn}" for turn in range(1, 11))} <= set(scenes.MADE)
    assert {*(f"fetch {page}" for page in range(9))} <= set(scenes.MADE)


def test_a_misspelt_tool_is_refused_before_a_model_is_paid(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    """The tool that is meant would be repeated without a word."""
    run = played(engine, "plain", tmp_path, on_unknown={"fetsh": "ask"})
    made = list(scenes.MADE)
    both = played(engine, "plain", tmp_path, on_unknown={"fetsh": "ask", "fetch": "repeat"})

    assert (run.status, made, both.status) == ("BLOCKED", [], "COMPLETED")
    assert run.error is not None
    assert run.error.message == (
        "on_unknown is 'fetsh'; allowed: names of tools: 'fetch' is one (with 'repeat', where "
        "both are meant)."
    )
