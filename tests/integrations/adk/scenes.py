"""Agents in a step, each by the name of its scene; and the catalog that runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import AgentTool, ToolContext
from google.genai import types

from leasehold import PipelineEntry, Registry, RetryPolicy, StepContext, StepDispatchEntry
from leasehold.integrations.adk import durable

#: The calls that were made, in order; what a test has happen in the next one of a tool.
MADE: list[str] = []
DOES: list[Callable[[], object]] = []
TOKENS = 7
_WHO = {"app_name": "app", "user_id": "u"}


class Told(BaseLlm):
    """A model that calls each of these tools in turn, and then says what they returned."""

    calls: list[tuple[str, dict[str, Any]]]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        results: list[Any] = []
        for content in llm_request.contents:
            for part in content.parts or ():
                if part.text is not None and content.role == "user":
                    results = []
                if part.function_response is not None:
                    results.append(part.function_response.response)
        MADE.append(f"{self.model} {len(results) + 1}")
        part = types.Part(text=f"{self.model}: {results}")
        if len(results) < len(self.calls):
            name, args = self.calls[len(results)]
            part = types.Part.from_function_call(name=name, args=args)
        elif stream:
            yield LlmResponse(content=types.ModelContent("…"), partial=True)
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=3, candidates_token_count=4, total_token_count=TOKENS
        )
        yield LlmResponse(content=types.ModelContent(part), usage_metadata=usage)


async def fetch(page: int, tool_context: ToolContext) -> str:
    """Fetch a page."""
    MADE.append(f"fetch {page}")
    if DOES:
        DOES.pop()()
    tool_context.state["last"] = page
    await asyncio.sleep(0)
    return f"page {page}"


def last(tool_context: ToolContext) -> dict[str, Any]:
    """Return the last page."""
    MADE.append("last")
    return {"last": tool_context.state["last"]}


def picture(page: int) -> types.Part:
    """Return the picture of a page."""
    MADE.append(f"picture {page}")
    return types.Part.from_bytes(data=b"\xff\x00", mime_type="image/png")


def fails(page: int) -> str:
    """Fail."""
    MADE.append(f"fails {page}")
    raise ValueError("not found")


def odd(page: int) -> Any:
    """Return what is not JSON."""
    MADE.append(f"odd {page}")
    return {"odd": object()}


def agent(*calls: tuple[str, dict[str, Any]], name: str = "agent", **more: Any) -> LlmAgent:
    tools = [fetch, last, picture, fails, odd, *more.pop("tools", [])]
    return LlmAgent(name=name, model=Told(model=name, calls=list(calls)), tools=tools, **more)


async def run(
    ctx: StepContext,
    agent: LlmAgent,
    text: str = "Go",
    sessions: BaseSessionService | None = None,
    on_unknown: Any = None,
    **more: Any,
) -> list[str]:
    """Run an agent in a new session; return what it says."""
    said: list[str] = []
    runner = Runner(
        app_name="app", agent=agent, session_service=sessions or InMemorySessionService()
    )
    with durable(ctx, runner, on_unknown=on_unknown):
        session = await runner.session_service.create_session(**_WHO)
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=types.UserContent(text), **more
        ):
            for part in (event.content or types.Content()).parts or ():
                said += [part.text] if part.text else []
    return said


async def plain(ctx: StepContext, given: dict[str, Any]) -> Any:
    calls = [("fetch", {"page": page}) for page in range(given.get("pages", 2))]
    asked = agent(*calls, ("last", {}))
    return await run(ctx, asked, on_unknown=given.get("on_unknown"))


async def streamed(ctx: StepContext, given: dict[str, Any]) -> Any:
    calls = [("fetch", {"page": page}) for page in range(given.get("pages", 2))]
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    return await run(ctx, agent(*calls), run_config=config)


async def media(ctx: StepContext, _: dict[str, Any]) -> Any:
    return await run(ctx, agent(("picture", {"page": 1})))


async def tool_that_fails(ctx: StepContext, _: dict[str, Any]) -> Any:
    return await run(ctx, agent(("fails", {"page": 1})))


async def odd_result(ctx: StepContext, _: dict[str, Any]) -> Any:
    return await run(ctx, agent(("odd", {"page": 1})))


async def agent_as_tool(ctx: StepContext, _: dict[str, Any]) -> Any:
    inner = agent(("fetch", {"page": 1}), name="inner")
    outer = agent(("inner", {"request": "more"}), name="outer", tools=[AgentTool(inner)])
    return await run(ctx, outer)


async def handed_over(ctx: StepContext, _: dict[str, Any]) -> Any:
    second = agent(
        ("fetch", {"page": 1}), ("fetch", {"page": 2}), name="second", description="More"
    )
    calls = ("fetch", {"page": 1}), ("transfer_to_agent", {"agent_name": "second"})
    return await run(ctx, agent(*calls, name="first", sub_agents=[second]))


async def kept_session(ctx: StepContext, given: dict[str, Any]) -> Any:
    """The session holds in the end what was said in it once, after any number of attempts."""
    sessions = SqliteSessionService(str(Path(given["folder"], "sessions.db")))
    said = await run(ctx, agent(("fetch", {"page": 1})), sessions=sessions)
    (session,) = (await sessions.list_sessions(**_WHO)).sessions
    found = await sessions.get_session(**_WHO, session_id=session.id)
    return [*said, len(found.events), found.state] if found else None


async def at_once(ctx: StepContext, _: dict[str, Any]) -> Any:
    """Each run finds its own records, in whatever order they start."""

    async def one(page: int) -> Any:
        await asyncio.sleep(0.01 * (len(MADE) % 3))
        return await run(ctx, agent(("fetch", {"page": page})), f"Go to {page}")

    return await asyncio.gather(*map(one, [1, 2, 3, 3]))


async def scene(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Play a scene; the attempts that come to the end fail, but for the last one."""
    result = await globals()[given["scene"]](ctx, given)
    if ctx.attempt <= given.get("fails", 0):
        raise ConnectionError("the attempt fails after all")
    return result


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="scene",
            handler=f"{__name__}:scene",
            agent_timeout=timedelta(minutes=5),
            dispatch_deadline=timedelta(minutes=10),
            max_retries=3,
            retry=RetryPolicy(first=timedelta(seconds=1), factor=1),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="scene", steps=("scene",))])

#: Each scene that ends well: the calls that are made, whatever fails, and what comes of it.
PLAYED: list[tuple[str, list[str], object]] = [
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
]
#: Those in which a tool returns what is not JSON.
ODD = ["odd_result"]
