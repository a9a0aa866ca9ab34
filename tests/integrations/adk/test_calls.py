"""What this library alone does with what agents call in a step; see also `../test_recorded.py`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from google.adk.runners import InMemoryRunner

from leasehold.testing import InProcessEngine
from tests.integrations.adk import scenes
from tests.integrations.adk.scenes import MADE
from tests.integrations.played import played

#: What the library does itself, where an agent is a tool.
pytestmark = pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")


def test_outside_of_a_step_agents_do_what_they_did() -> None:
    """Also those that were in one: they are changed in place."""
    MADE.clear()
    runner = InMemoryRunner(scenes.agent(("fetch", {"page": 1})))

    events = asyncio.run(runner.run_debug("Go", quiet=True))

    assert events[-1].content is not None
    assert MADE == ["agent 1", "fetch 1", "agent 2"]


def test_an_error_of_a_tool_is_not_recorded(engine: InProcessEngine, tmp_path: Path) -> None:
    """A retry of the step would be in vain if it stood for what the tool found."""
    run = played(engine, "tool_that_fails", tmp_path)

    assert (run.dead_lettered, MADE) == (True, ["agent 1", *["fails 1"] * 4])
