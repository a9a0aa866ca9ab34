"""What agents call in a step is recorded: an attempt that comes later makes no call again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.runners import InMemoryRunner

from leasehold import testing
from leasehold.domain.manifest import Manifest
from leasehold.testing import InProcessEngine
from tests.integrations.adk import scenes
from tests.integrations.adk.scenes import DOES, MADE

#: What the library does itself, where an agent is a tool.
pytestmark = pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")


@pytest.fixture(autouse=True)
def forget() -> None:
    MADE.clear()
    DOES.clear()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[InProcessEngine]:
    with testing.engine(scenes, tmp_path) as engine:
        yield engine


def played(engine: InProcessEngine, scene: str, folder: Path, **given: object) -> Manifest:
    """Play a scene until it has ended."""
    run = engine.start("scene", {"scene": scene, "folder": str(folder), **given})
    return engine.run_until_settled(run.run_id)


def output_of(run: Manifest) -> Any:
    return json.loads(run.steps["scene"].output or "null")


@pytest.mark.parametrize(
    ("scene", "made", "output"),
    [
        (
            "plain",
            ["agent 1", "fetch 0", "agent 2", "fetch 1", "agent 3", "last", "agent 4"],
            ["agent: [{'result': 'page 0'}, {'result': 'page 1'}, {'last': 1}]"],
        ),
        (
            "streamed",
            ["agent 1", "fetch 0", "agent 2", "fetch 1", "agent 3"],
            ["agent: [{'result': 'page 0'}, {'result': 'page 1'}]"],
        ),
        ("media", ["agent 1", "picture 1", "agent 2"], ["agent: [{}]"]),
        (
            "agent_as_tool",
            ["outer 1", "inner 1", "fetch 1", "inner 2", "outer 2"],
            ["""outer: [{'result': "inner: [{'result': 'page 1'}]"}]"""],
        ),
        (
            "handed_over",
            [
                "first 1",
                "fetch 1",
                "first 2",
                "second 1",
                "fetch 1",
                "second 2",
                "fetch 2",
                "second 3",
            ],
            ["second: [{'result': 'page 1'}, {'result': 'page 2'}]"],
        ),
        (
            "kept_session",
            ["agent 1", "fetch 1", "agent 2"],
            ["agent: [{'result': 'page 1'}]", 4, {"last": 1}],
        ),
        (
            "at_once",
            [*["agent 1"] * 4, *["agent 2"] * 4, "fetch 1", "fetch 2", "fetch 3", "fetch 3"],
            [[f"agent: [{{'result': 'page {page}'}}]"] for page in (1, 2, 3, 3)],
        ),
    ],
)
def test_an_attempt_that_comes_later_makes_no_call_again(
    engine: InProcessEngine, tmp_path: Path, scene: str, made: list[str], output: object
) -> None:
    run = played(engine, scene, tmp_path, fails=2)

    assert (run.status, output_of(run)) == ("COMPLETED", output)
    assert sorted(MADE) == sorted(made)


def test_outside_of_a_step_agents_do_what_they_did() -> None:
    """Also those that were in one: they are changed in place."""
    runner = InMemoryRunner(scenes.agent(("fetch", {"page": 1})))

    events = asyncio.run(runner.run_debug("Go", quiet=True))

    assert events[-1].content is not None
    assert MADE == ["agent 1", "fetch 1", "agent 2"]


def test_an_error_of_a_tool_is_not_recorded(engine: InProcessEngine, tmp_path: Path) -> None:
    """A retry of the step would be in vain if it stood for what the tool found."""
    run = played(engine, "tool_that_fails", tmp_path)

    assert (run.dead_lettered, MADE) == (True, ["agent 1", *["fails 1"] * 4])


def test_a_result_that_cannot_be_recorded_blocks_the_run_and_is_not_told_to_the_model(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    run = played(engine, "odd_result", tmp_path)

    assert (run.status, MADE) == ("BLOCKED", ["agent 1", "odd 1"])
    assert run.error is not None
    assert run.error.code == "unrestorable_result"


@pytest.mark.parametrize("scene", ["plain", "streamed"])
def test_an_outage_of_the_store_defers_the_attempt(
    engine: InProcessEngine, tmp_path: Path, scene: str
) -> None:
    """It is no error of a tool, and the model gets none."""
    DOES.append(lambda: engine.faults.store_away(3600))
    run = played(engine, scene, tmp_path)

    attempts = run.steps["scene"].attempts
    assert (run.status, attempts.failed) == ("COMPLETED", 0)
    assert attempts.deferred + attempts.expired > 0
    assert "page 0" in str(output_of(run))


@pytest.mark.parametrize("scene", ["plain", "streamed"])
def test_an_agent_that_takes_longer_than_an_attempt_goes_on_in_the_next_one(
    engine: InProcessEngine, tmp_path: Path, scene: str
) -> None:
    DOES.extend([lambda: engine.advance(40)] * 9)
    run = played(engine, scene, tmp_path, pages=9)

    attempts = run.steps["scene"].attempts
    assert (run.status, attempts.failed, attempts.expired) == ("COMPLETED", 0, 0)
    assert attempts.continued > 0
    assert sorted(set(MADE)) == sorted(MADE)
