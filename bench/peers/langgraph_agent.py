"""The fake agent of LangChain, which is a graph of LangGraph."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from bench.peers.agent import PAGE, Probe

NO_LIMIT = {"recursion_limit": 1_000_000}
GIVEN = {"messages": [("user", "Look.")]}


class FakeModel(BaseChatModel):
    """Asks for a tool so many times."""

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, *_: Any, **__: Any) -> FakeModel:
        """Take the tools as they are."""
        return self

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        probe = Probe.here
        probe.call(turn)
        calls = [{"name": "look", "args": {"turn": turn}, "id": f"call-{turn}"}]
        message = AIMessage("Done.") if turn == probe.turns else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def look(turn: int) -> str:
    """Look at a page."""
    Probe.here.call(-1)
    return f"{turn}: {PAGE}"


def agent_of(**options: Any) -> Any:
    """Return the agent, with a checkpointer or middleware."""
    return create_agent(FakeModel(), [look], **options)
