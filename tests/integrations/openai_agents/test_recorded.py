"""What agents call in a step is recorded: an attempt that comes later makes no call again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import Runner

from leasehold import testing
from leasehold.domain.manifest import Manifest
from leasehold.testing import InProcessEngine
from tests.integrations.openai_agents import scenes
from tests.integrations.openai_agents.scenes import DOES, MADE


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
    return json.loads(run.steps[run.plan[0]].output or "null")


@pytest.mark.parametrize(
    ("scene", "made", "output"),
    [
        (
            "plain",
            ["agent 1", "fetch 0", "agent 2", "fetch 1", "agent 3"],
            "agent: ['page 0', 'page 1']",
        ),
        (
            "streamed",
            ["agent 1", "fetch 0", "agent 2", "fetch 1", "agent 3"],
            ["agent: ['page 0', 'page 1']", 5],
        ),
        (
            "typed_results",
            ["agent 1", "typed 1", "agent 2", "text 2", "agent 3"],
            "agent: ['number=1', [{'type': 'input_text', 'text': 'text 2'}]]",
        ),
        (
            "agent_as_tool",
            ["outer 1", "inner 1", "fetch 1", "inner 2", "outer 2"],
            """outer: ["inner: ['page 1']"]""",
        ),
        (
            "guarded",
            ["agent 1", "agent 2", "fetch 1", "judge 1"],
            "agent: ['page 1']",
        ),
        (
            "session",
            ["agent 1", "agent 1", "agent 2", "agent 2", "fetch 1", "fetch 1"],
            ["agent: ['page 1']", 8],
        ),
        (
            "mcp",
            ["agent 1", "lend 1", "agent 2"],
            "agent: [[{'type': 'input_text', 'text': 'lent 1'}]]",
        ),
        ("approval", ["agent 1", "pay 5", "agent 2"], "agent: ['paid 5']"),
        (
            "at_once",
            [*["agent 1"] * 4, *["agent 2"] * 4, "fetch 1", "fetch 2", "fetch 3", "fetch 3"],
            [f"agent: ['page {page}']" for page in (1, 2, 3, 3)],
        ),
    ],
)
def test_an_attempt_that_comes_later_makes_no_call_again(
    engine: InProcessEngine, tmp_path: Path, scene: str, made: list[str], output: object
) -> None:
    run = played(engine, scene, tmp_path, fails=2)

    assert (run.status, output_of(run)) == ("COMPLETED", output)
    assert sorted(MADE) == sorted(made)


def test_a_run_without_a_loop_is_recorded_too(engine: InProcessEngine) -> None:
    run = engine.run_until_settled(engine.start("in_a_thread", {}).run_id)

    assert (output_of(run), MADE) == ("agent: ['page 1']", ["agent 1", "fetch 1", "agent 2"])


def test_outside_of_a_step_agents_do_what_they_did() -> None:
    """Also those that were in one: they are changed in place."""
    result = asyncio.run(Runner.run(scenes.agent(("fetch", {"page": 1})), "Go"))

    assert (result.final_output, MADE) == ("agent: ['page 1']", ["agent 1", "fetch 1", "agent 2"])


def test_an_error_of_a_tool_is_told_to_the_model_and_not_recorded(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    """A retry of the step would be in vain if it stood for what the tool found."""
    run = played(engine, "tool_that_fails", tmp_path, fails=1)

    assert "An error occurred while running the tool" in output_of(run)
    assert MADE == ["agent 1", "fails 1", "agent 2", "fails 1"]


@pytest.mark.parametrize("scene", ["odd_result", "odd_result_streamed"])
def test_a_result_that_cannot_be_recorded_blocks_the_run_and_is_not_told_to_the_model(
    engine: InProcessEngine, tmp_path: Path, scene: str
) -> None:
    run = played(engine, scene, tmp_path)

    assert (run.status, set(MADE)) == ("BLOCKED", {"agent 1", "odd 1"})
    assert run.error is not None
    assert run.error.message.startswith("The result of the call 'agent-0eb2e8c3/odd/call-0' cannot")


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
    assert sorted(MADE) == sorted(
        [*(f"agent {turn}" for turn in range(1, 11)), *(f"fetch {page}" for page in range(9))]
    )


def test_an_attempt_ends_in_time_although_a_call_of_another_agent_is_under_way(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    """It waits for that call. Agents at work at once have one under way at any time."""
    DOES.extend([lambda: engine.advance(40)] * 9)
    run = played(engine, "two", tmp_path, pages=9)

    attempts = run.steps["scene"].attempts
    assert (run.status, attempts.failed, attempts.expired) == ("COMPLETED", 0, 0)
    assert attempts.continued > 0
    assert len(MADE) == len(set(MADE)) == (9 + 10) + (1 + 2)


def test_a_tool_that_no_agent_has_is_said_to_be_unknown(
    engine: InProcessEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else one whose name was misspelt would be repeated without a word."""
    played(engine, "plain", tmp_path, on_unknown={"fetsh": "ask"})

    assert caplog.messages[-1].startswith("on_unknown names fetsh, and the agents had no such tool")


def test_another_word_for_such_a_tool_is_refused_before_a_model_is_paid(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    run = played(engine, "plain", tmp_path, on_unknown={"fetch": "aks"})

    assert (run.status, MADE) == ("BLOCKED", [])
    assert run.error is not None
    assert run.error.message == "on_unknown['fetch'] is 'aks'; allowed: repeat, ask, fail."


def test_an_agent_without_a_name_is_refused(engine: InProcessEngine, tmp_path: Path) -> None:
    run = played(engine, "unnamed", tmp_path)

    assert run.error is not None
    assert run.error.message == (
        "agent is ' '; allowed: an agent with a name, which its records are kept under: "
        "Agent(name=…)."
    )
