"""Agents of LangChain, and a graph, on a scripted model: three tools at once, then another one."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Final, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from leasehold import StepContext
from leasehold.integrations.langgraph import LeaseholdMiddleware, LeaseholdSaver, durable
from tests.integrations.kills import Deeds, pipelines_of, price_of, steps_of

#: How often the model is asked, and what each time costs, by the list.
TURNS: Final = 3
TOKENS: Final = 1_500
USD: Final = 0.0075
#: What the steps answer.
ANSWER: Final = "{prompt}: a of x b of x c of x {d}"
#: What a deploy that changes the prompt makes again, after a kill in d: its first difference.
#: A tool that another answer asks for is another call.
AFTER_A_DEPLOY: Final = ["model 1", "a", "b", "c", "model 2", "d"]
PROMPT: Final = "prompt"


class ScriptedModel(BaseChatModel):
    """A model that goes by the messages before, as each process begins with none.

    It numbers the tool calls of each message anew, as some providers do.
    """

    model: str = "gpt-4o"
    deeds: Any = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> ScriptedModel:
        """Take the tools as they are."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        turn = 1 + sum(isinstance(message, AIMessage) for message in messages)
        self.deeds.asked(turn)
        prompt = next((each.text for each in messages if each.type == "system"), "")
        results = " ".join(each.text for each in messages if each.type == "tool")
        text = f"{prompt}: {results}" if turn == TURNS else ""
        calls = [
            ToolCall(name=name, args={"of": "x"}, id=f"call-{number}")
            for number, name in enumerate(ASKED.get(turn, ""))
        ]
        usage = {"input_tokens": 1_000, "output_tokens": 500, "total_tokens": TOKENS}
        message = AIMessage(text, tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


#: The tools that are asked for in a turn.
ASKED: Final = {1: "abc", 2: "d"}


class Recorded(AgentMiddleware[Any, Any, Any]):
    """Notes what is recorded: it stands around the middleware that does.

    Args:
        deeds: which notes it.
    """

    def __init__(self, deeds: Deeds) -> None:
        super().__init__()
        self._deeds = deeds

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        result = await handler(request)
        self._deeds.recorded(request.tool_call["name"])
        return result

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        result = handler(request)
        self._deeds.recorded(request.tool_call["name"])
        return result


class RecordedSaver(LeaseholdSaver):
    """Notes what is recorded of the tasks of a batch."""

    deeds: Deeds

    async def aput_writes(self, config: Any, writes: Any, task_id: str, path: str = "") -> None:
        await super().aput_writes(config, writes, task_id, path)
        for result in (each for channel, value in writes if channel == "results" for each in value):
            self.deeds.recorded(result.partition(" ")[0])


def agent_of(deeds: Deeds, given: dict[str, Any], saver: LeaseholdSaver | None = None) -> Any:
    def tool_of(name: str) -> StructuredTool:
        async def work(of: str) -> str:
            return await deeds.work(name, of)

        def work_in_thread(of: str) -> str:
            return deeds.work_in_thread(name, of)

        return StructuredTool.from_function(
            work_in_thread, coroutine=work, name=name, description=f"Do {name}."
        )

    return create_agent(
        ScriptedModel(deeds=deeds),
        [tool_of(name) for name in "abcd"],
        system_prompt=deeds.prompt,
        middleware=[Recorded(deeds), LeaseholdMiddleware(on_unknown=given.get("on_unknown"))],
        checkpointer=saver,
    )


GO: Final = {"messages": [("user", "Go")]}


async def answer(ctx: StepContext, given: dict[str, Any]) -> str:
    agent = agent_of(Deeds(given["folder"]), given)
    with durable(ctx, price=price_of(given)):
        return str((await agent.ainvoke(GO))["messages"][-1].text)


def in_threads(ctx: StepContext, given: dict[str, Any]) -> str:
    agent = agent_of(Deeds(given["folder"]), given)
    with durable(ctx, price=price_of(given)):
        return str(agent.invoke(GO)["messages"][-1].text)


async def saved(ctx: StepContext, given: dict[str, Any]) -> str:
    saver = LeaseholdSaver(ctx)
    agent = agent_of(Deeds(given["folder"]), given, saver)
    with durable(ctx, price=price_of(given)):
        return str((await agent.ainvoke(GO, saver.config()))["messages"][-1].text)


class State(TypedDict):
    turn: int
    results: Annotated[list[str], operator.add]


async def graph(ctx: StepContext, given: dict[str, Any]) -> str:
    """Run a graph whose nodes do what the agents do; only the saver records."""
    deeds, saver = Deeds(given["folder"]), RecordedSaver(ctx)
    saver.deeds = deeds

    async def model(state: State) -> dict[str, Any]:
        deeds.asked(state["turn"] + 1)
        return {"turn": state["turn"] + 1}

    async def tool(name: str) -> dict[str, Any]:
        return {"results": [await deeds.work(name, "x")]}

    def plan(state: State) -> list[Send] | str:
        return [Send("tool", name) for name in ASKED.get(state["turn"], "")] or END

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("tool", tool)  # type: ignore[type-var] # of a task's own value
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", plan, ["tool", END])
    builder.add_edge("tool", "model")
    compiled = builder.compile(checkpointer=saver)
    state = await compiled.ainvoke({"turn": 0, "results": []}, saver.config(), durability="sync")
    return f"{deeds.prompt}: {' '.join(state['results'])}"


STEPS = steps_of(__name__, "answer", "in_threads", "saved", "graph")
PIPELINES = pipelines_of(STEPS)
SPENDING: Final = ["answer", "in_threads"]
