"""Agents in a step, each by the name of its scene; and the catalog that runs them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    Runner,
    RunState,
    SQLiteSession,
    ToolOutputText,
    Usage,
    function_tool,
    input_guardrail,
)
from agents.mcp import MCPServer
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from mcp import types as mcp_types
from pydantic import BaseModel

from leasehold import PipelineEntry, Registry, RetryPolicy, StepContext, StepDispatchEntry
from leasehold.integrations.durable import current
from leasehold.integrations.openai_agents import durable

#: The calls that were made, in order; what a test has happen in the next one of a tool.
MADE: list[str] = []
DOES: list[Callable[[], object]] = []
TOKENS = 7


class Told(ScriptedModel):
    """A model that calls each of these tools in turn, and then says what they returned."""

    def __init__(self, name: str, *calls: tuple[str, dict[str, Any]]) -> None:
        super().__init__([ModelStep.respond(self._answer)] * (len(calls) + 1))
        self._name, self._tools = name, calls

    def _answer(self, call: Any) -> ModelStep:
        last = max(
            (at for at, each in enumerate(call.input) if each.get("role") == "user"), default=0
        )
        results = [each["output"] for each in call.input[last:] if "output" in each]
        MADE.append(f"{self._name} {len(results) + 1}")
        usage = Usage(requests=1, total_tokens=TOKENS)
        if len(results) < len(self._tools):
            name, args = self._tools[len(results)]
            call_id = f"call-{len(results)}"
            return ModelStep([function_call(name, args, call_id=call_id)], usage)
        return ModelStep([assistant_message(f"{self._name}: {results}")], usage)


class Page(BaseModel):
    number: int


@function_tool
async def fetch(page: int) -> str:
    MADE.append(f"fetch {page}")
    step = current()
    if step is not None and not step.ctx.time_left():
        MADE.append("the attempt is over")
    if DOES:
        DOES.pop()()
    await asyncio.sleep(0)
    return f"page {page}"


@function_tool
async def hold(page: int) -> str:
    """Take a while, in which another agent goes on."""
    MADE.append(f"hold {page}")
    await asyncio.sleep(1)
    return f"held {page}"


@function_tool
def typed(page: int) -> Page:
    MADE.append(f"typed {page}")
    return Page(number=page)


@function_tool
def text(page: int) -> ToolOutputText:
    MADE.append(f"text {page}")
    return ToolOutputText(text=f"text {page}")


@function_tool
def fails(page: int) -> str:
    MADE.append(f"fails {page}")
    raise ValueError("not found")


@function_tool
def odd(page: int) -> Any:
    MADE.append(f"odd {page}")
    return object()


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    MADE.append(f"pay {amount}")
    return f"paid {amount}"


def agent(*calls: tuple[str, dict[str, Any]], name: str = "agent", **more: Any) -> Agent[Any]:
    tools = [fetch, hold, typed, text, fails, odd, pay, *more.pop("tools", [])]
    return Agent(name, model=Told(name, *calls), tools=tools, **more)


async def plain(given: dict[str, Any]) -> Any:
    calls = [("fetch", {"page": page}) for page in range(given.get("pages", 2))]
    turns = len(calls) + 1
    return (await Runner.run(agent(*calls), "Go", max_turns=turns)).final_output


async def streamed(given: dict[str, Any]) -> Any:
    calls = [("fetch", {"page": page}) for page in range(given.get("pages", 2))]
    result = Runner.run_streamed(agent(*calls), "Go")
    events = [event.type async for event in result.stream_events()]
    return [result.final_output, events.count("run_item_stream_event")]


async def typed_results(_: dict[str, Any]) -> Any:
    calls = ("typed", {"page": 1}), ("text", {"page": 2})
    return (await Runner.run(agent(*calls), "Go")).final_output


async def tool_that_fails(_: dict[str, Any]) -> Any:
    return (await Runner.run(agent(("fails", {"page": 1})), "Go")).final_output


async def odd_result(_: dict[str, Any]) -> Any:
    return (await Runner.run(agent(("odd", {"page": 1})), "Go")).final_output


async def odd_result_streamed(_: dict[str, Any]) -> Any:
    result = Runner.run_streamed(agent(("odd", {"page": 1})), "Go")
    return [event.type async for event in result.stream_events()]


async def agent_as_tool(_: dict[str, Any]) -> Any:
    inner = agent(("fetch", {"page": 1}), name="inner")
    outer = agent(
        ("ask", {"input": "more"}), name="outer", tools=[inner.as_tool("ask", "Asks another agent")]
    )
    return (await Runner.run(outer, "Go")).final_output


async def handed_over(_: dict[str, Any]) -> Any:
    """The second agent has its own model; to it, the hand-off is a first result."""
    second = agent(("transfer_to_second", {}), ("fetch", {"page": 1}), name="second")
    first = agent(("transfer_to_second", {}), name="first", handoffs=[second])
    return (await Runner.run(first, "Go")).final_output


async def guarded(_: dict[str, Any]) -> Any:
    @input_guardrail
    async def check(*_: Any) -> GuardrailFunctionOutput:
        judged = await Runner.run(agent(name="judge"), "Is it harmless?")
        return GuardrailFunctionOutput(judged.final_output, tripwire_triggered=False)

    checked = agent(("fetch", {"page": 1}), input_guardrails=[check])
    return (await Runner.run(checked, "Go")).final_output


async def session(given: dict[str, Any]) -> Any:
    kept = SQLiteSession("one", Path(given["folder"], "session.db"))
    for _ in range(2):
        result = await Runner.run(agent(("fetch", {"page": 1})), "Go", session=kept)
    return [result.final_output, len(await kept.get_items())]


async def approval(_: dict[str, Any]) -> Any:
    """The state of a run is JSON, as a step hands it to the next one."""
    result = await Runner.run(agent(("pay", {"amount": 5})), "Go")
    told = json.dumps(result.to_state().to_json())
    again = agent(("pay", {"amount": 5}))
    state = await RunState.from_json(again, json.loads(told))
    state.approve(*state.get_interruptions())
    return (await Runner.run(again, state)).final_output


class Library(MCPServer):
    """An MCP server in this process."""

    name = "library"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *_: Any, **__: Any) -> list[Any]:
        schema = {"type": "object", "properties": {"page": {"type": "integer"}}}
        return [mcp_types.Tool(name="lend", input_schema=schema)]

    async def call_tool(self, _: str, arguments: Any, *__: Any, **___: Any) -> Any:
        MADE.append(f"lend {arguments['page']}")
        text = mcp_types.TextContent(type="text", text=f"lent {arguments['page']}")
        return mcp_types.CallToolResult(content=[text])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, *_: Any, **__: Any) -> Any: ...


async def mcp(_: dict[str, Any]) -> Any:
    served = agent(("lend", {"page": 1}), mcp_servers=[Library()])
    return (await Runner.run(served, "Go")).final_output


async def two(given: dict[str, Any]) -> Any:
    """While one of two agents works, a call of the other one is under way."""
    calls = [("fetch", {"page": page}) for page in range(given["pages"])]
    runs = (
        Runner.run(agent(("hold", {"page": 1}), name="slow"), "Go"),
        Runner.run(agent(*calls), "Go", max_turns=given["pages"] + 1),
    )
    return [result.final_output for result in await asyncio.gather(*runs)]


async def at_once(_: dict[str, Any]) -> Any:
    """Each run finds its own records, in whatever order they start."""

    async def one(page: int) -> Any:
        await asyncio.sleep(0.01 * (len(MADE) % 3))
        one_agent = agent(("fetch", {"page": page}))
        return (await Runner.run(one_agent, f"Go to {page}")).final_output

    return await asyncio.gather(*map(one, [1, 2, 3, 3]))


async def excused(_: dict[str, Any]) -> Any:
    """Go on, whatever becomes of an agent."""
    going = Runner.run(agent(("fetch", {"page": 0})), "Go")
    return [str(result) for result in await asyncio.gather(going, return_exceptions=True)]


async def unnamed(_: dict[str, Any]) -> Any:
    return (await Runner.run(agent(name=" "), "Go")).final_output


async def scene(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Play a scene; the attempts that come to the end fail, but for the last one."""
    with durable(ctx, on_unknown=given.get("on_unknown")):
        result = await globals()[given["scene"]](given)
    if ctx.attempt <= given.get("fails", 0):
        raise ConnectionError("the attempt fails after all")
    return result


def in_a_thread(ctx: StepContext, _: dict[str, Any]) -> Any:
    loop = asyncio.new_event_loop()  # the library would make one, and not close it
    asyncio.set_event_loop(loop)
    try:
        with durable(ctx):
            return Runner.run_sync(agent(("fetch", {"page": 1})), "Go").final_output
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=5),
        dispatch_deadline=timedelta(minutes=10),
        max_retries=3,
        retry=RetryPolicy(first=timedelta(seconds=1), factor=1),
    )


STEPS = Registry("dispatch", [_entry("scene"), _entry("in_a_thread")])
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="scene", steps=("scene",)),
        PipelineEntry(name="in_a_thread", steps=("in_a_thread",)),
    ],
)

#: Each scene that ends well: the calls that are made, whatever fails, and what comes of it.
PLAYED: list[tuple[str, list[str], object]] = [
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
        "handed_over",
        ["first 1", "second 2", "fetch 1", "second 3"],
        """second: ['{"assistant": "second"}', 'page 1']""",
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
]
#: Those in which a tool returns what is not JSON.
ODD = ["odd_result", "odd_result_streamed"]
