"""Agents of LangChain and a graph of LangGraph, on a scripted model, and the steps they work in."""

from __future__ import annotations

import asyncio
import operator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from leasehold import PipelineEntry, Registry, RetryPolicy, StepContext, StepDispatchEntry
from leasehold.integrations.langgraph import LeaseholdMiddleware, LeaseholdSaver, durable
from tests.integrations.kills import Deeds

#: How many tools are called at once.
AT_ONCE = 5
#: How often.
TURNS = 2


class ScriptedModel(BaseChatModel):
    """A model that asks for so many tools, so many times, and then answers.

    It numbers the tool calls of each message anew, as some providers do.
    """

    model: str = "scripted-1"
    deeds: Any = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> ScriptedModel:
        """Take the tools as they are."""
        return self

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        self.deeds.did(f"model {turn}")
        self.deeds.at(f"model {turn}")
        usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        if turn == TURNS:
            prompt = next((each.text for each in messages if each.type == "system"), "")
            return _said(AIMessage(f"{prompt} {turn} turns", usage_metadata=usage))
        calls = [
            {"name": "look", "args": {"turn": turn, "number": number}, "id": f"call-{number}"}
            for number in range(AT_ONCE)
        ]
        return _said(AIMessage("", tool_calls=calls, usage_metadata=usage))


def _said(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


class LookOnce:
    """The look that a tool takes; of a batch the first ends last, and the last begins last.

    So, where a process is killed at the last one, the first is under way, and the results of all
    that are between them are recorded.
    """

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds

    async def __call__(self, turn: int, number: int) -> str:
        """Look, or be killed."""
        if number == AT_ONCE - 1:
            await self._recorded(turn, AT_ONCE - 2)
        self._deeds.did(f"look {turn}.{number}")
        self._deeds.at(f"look {turn}.{number}")
        if number == 0:
            await self._recorded(turn, AT_ONCE - 1)
        return f"{turn}.{number}"

    async def _recorded(self, turn: int, last: int) -> None:
        wanted = {f"recorded {turn}.{number}" for number in range(1, last + 1)}
        while not wanted <= set(self._deeds.done):  # noqa: ASYNC110 - other processes do it too
            await asyncio.sleep(0.01)


class NotesRecords(AgentMiddleware[Any, Any, Any]):
    """Notes what is recorded: it stands around the middleware that does."""

    def __init__(self, deeds: Deeds) -> None:
        super().__init__()
        self._deeds = deeds

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        """Note a call when its result is recorded."""
        result = await handler(request)
        self._deeds.did("recorded {turn}.{number}".format(**request.tool_call["args"]))
        return result


class NotingSaver(LeaseholdSaver):
    """Notes what is recorded of the tasks of a batch."""

    deeds: Deeds

    async def aput_writes(self, config: Any, writes: Any, task_id: str, path: str = "") -> None:
        """Note what a task has seen when that is recorded."""
        await super().aput_writes(config, writes, task_id, path)
        for look in (look for channel, value in writes if channel == "seen" for look in value):
            self.deeds.did(f"recorded {look}")


async def agent(ctx: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    """Run an agent whose calls are recorded by the middleware; also its checkpoints if asked."""
    deeds = Deeds(given["folder"])
    prompt = Path(given["folder"]) / "prompt"  # what a deploy changes
    saver = LeaseholdSaver(ctx) if given.get("saver") else None
    look_once = LookOnce(deeds)

    @tool
    async def look(turn: int, number: int) -> str:
        """Look at something."""
        return await look_once(turn, number)

    researcher = create_agent(
        ScriptedModel(deeds=deeds),
        [look],
        system_prompt=prompt.read_text() if prompt.exists() else "Done:",
        middleware=[NotesRecords(deeds), LeaseholdMiddleware()],
        checkpointer=saver,
    )
    with durable(ctx):
        state = await researcher.ainvoke(
            {"messages": [("user", "Look around.")]}, saver.config() if saver else None
        )
    return {
        "said": state["messages"][-1].text,
        "seen": [each.text for each in state["messages"] if each.type == "tool"],
    }


class Seen(TypedDict):
    """The state of the graph."""

    seen: Annotated[list[str], operator.add]
    turn: int


async def graph(ctx: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    """Run a graph in which a model plans batches of looks; only the saver records."""
    deeds = Deeds(given["folder"])
    look_once, saver = LookOnce(deeds), NotingSaver(ctx)
    saver.deeds = deeds

    async def model(state: Seen) -> dict[str, Any]:
        turn = state["turn"] + 1
        deeds.did(f"model {turn}")
        deeds.at(f"model {turn}")
        return {"turn": turn}

    def plan(state: Seen) -> list[Send] | str:
        looks = [{"turn": state["turn"], "number": number} for number in range(AT_ONCE)]
        return END if state["turn"] == TURNS else [Send("look", each) for each in looks]

    async def look(task: dict[str, int]) -> dict[str, Any]:
        return {"seen": [await look_once(**task)]}

    builder = StateGraph(Seen)
    builder.add_node("model", model)
    builder.add_node("look", look)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", plan, ["look", END])
    builder.add_edge("look", "model")
    compiled = builder.compile(checkpointer=saver)
    return await compiled.ainvoke({"seen": [], "turn": -1}, saver.config(), durability="sync")


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=f"{__name__}:{name}",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            max_retries=20,
            retry=RetryPolicy(first=timedelta(seconds=0.01), factor=1),
        )
        for name in ("agent", "graph")
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=name, steps=(name,)) for name in ("agent", "graph")]
)
GATES = Registry("gates", [])
