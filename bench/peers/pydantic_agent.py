"""The fake agent of Pydantic AI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import UsageLimits

from bench.peers.agent import PAGE, Probe

NO_LIMIT = UsageLimits(request_limit=None)


def agent_of(
    probe: Probe, capability: Any | None, tool: Callable[[Any], Any] = lambda tool: tool
) -> Agent[None, str]:
    """Return the agent.

    Args:
        probe: sees what it does.
        capability: makes it durable.
        tool: what an engine wants of a tool beside that.
    """

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        probe.call(turn)
        if turn == probe.turns:
            return ModelResponse([TextPart("Done.")])
        return ModelResponse([ToolCallPart("look", {"turn": turn}, f"call-{turn}")])

    toolset: FunctionToolset[None] = FunctionToolset(id="tools")

    @toolset.tool_plain
    @tool
    async def look(turn: int) -> str:
        """Look at a page."""
        probe.call(-1)
        return f"{turn}: {PAGE}"

    return Agent(
        FunctionModel(answer, model_name="fake"),
        name="looker",
        toolsets=[toolset],
        capabilities=[] if capability is None else [capability],
    )
