"""What this library alone does with what agents call in a step; see also `../test_recorded.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from agents import Runner

from leasehold.testing import InProcessEngine
from tests.integrations.openai_agents import scenes
from tests.integrations.openai_agents.scenes import DOES, MADE
from tests.integrations.played import output_of, played


def test_a_run_without_a_loop_is_recorded_too(engine: InProcessEngine) -> None:
    run = engine.run_until_settled(engine.start("in_a_thread", {}).run_id)

    assert (output_of(run), MADE) == ("agent: ['page 1']", ["agent 1", "fetch 1", "agent 2"])


def test_outside_of_a_step_agents_do_what_they_did() -> None:
    """Also those that were in one: they are changed in place."""
    MADE.clear()
    result = asyncio.run(Runner.run(scenes.agent(("fetch", {"page": 1})), "Go"))

    assert (result.final_output, MADE) == ("agent: ['page 1']", ["agent 1", "fetch 1", "agent 2"])


def test_an_error_of_a_tool_is_told_to_the_model_and_not_recorded(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    """A retry of the step would be in vain if it stood for what the tool found."""
    run = played(engine, "tool_that_fails", tmp_path, fails=1)

    assert "An error occurred while running the tool" in output_of(run)
    assert MADE == ["agent 1", "fails 1", "agent 2", "fails 1"]


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


def test_an_outage_defers_an_attempt_that_goes_on_whatever_becomes_of_its_agents(
    engine: InProcessEngine, tmp_path: Path
) -> None:
    """Else its output lacks what an agent was about to find."""
    DOES.append(lambda: engine.faults.store_away(27))  # as the attempt has to end, of its 30 s
    run = played(engine, "excused", tmp_path)

    assert (run.status, run.steps["scene"].attempts.deferred) == ("COMPLETED", 1)
    assert "page 0" in str(output_of(run))


def test_a_tool_that_no_agent_has_is_said_to_be_unknown(
    engine: InProcessEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent may have it for some inputs alone."""
    run = played(engine, "plain", tmp_path, on_unknown={"order": "ask"})

    assert run.status == "COMPLETED"
    assert caplog.messages[-1].startswith("on_unknown names order, and the agents had no such tool")


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
