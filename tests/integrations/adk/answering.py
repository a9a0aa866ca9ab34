"""A step whose agent calls three tools at once, and hands over to one that calls another tool."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import ToolContext
from google.genai import types

from leasehold import PipelineEntry, Registry, RetryPolicy, StepContext, StepDispatchEntry
from leasehold.integrations.adk import durable
from tests.integrations.kills import Deeds

TOKENS: Final = 7
_WHO: Final = {"app_name": "app", "user_id": "u"}


class Scripted(BaseLlm):
    """A model that goes by the results in its input, as each process begins with none."""

    folder: str

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002 - the library's
    ) -> AsyncIterator[LlmResponse]:
        parts = [part for content in llm_request.contents for part in content.parts or ()]
        results = [
            str((part.function_response.response or {})["result"])
            for part in parts
            if part.function_response is not None
        ]
        yield self._answer(results, " ".join(part.text or "" for part in parts))

    def _answer(self, results: list[str], text: str) -> LlmResponse:
        turn = {0: 1, 3: 2, 4: 3, 5: 4}[len(results) + text.count("returned result")]
        deeds = Deeds(self.folder)
        deeds.did(f"model {turn}")
        deeds.at(f"model {turn}")
        parts = {
            1: [_call(name, of="x") for name in "abc"],
            2: [_call("transfer_to_agent", agent_name="second")],
            3: [_call("d", of="x")],
            4: [types.Part(text=" ".join(results))],
        }[turn]
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=3, candidates_token_count=4, total_token_count=TOKENS
        )
        return LlmResponse(content=types.ModelContent(parts), usage_metadata=usage)


def _call(name: str, **args: str) -> types.Part:
    return types.Part.from_function_call(name=name, args=dict(args))


def agent(deeds: Deeds, folder: str) -> LlmAgent:
    """Return the agent; it keeps in the session's state which tools it has called."""
    ended: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def a(of: str, tool_context: ToolContext) -> str:
        """Do a."""
        deeds.did("a")
        tool_context.state["a"] = of
        return f"a of {of}"

    async def b(of: str) -> str:
        """Do b."""
        deeds.did("b")
        await ended["a"].wait()
        deeds.at("b")
        return f"b of {of}"

    async def c(of: str) -> str:
        """Do c."""
        deeds.did("c")
        await ended["b"].wait()
        return f"c of {of}"

    def d(of: str, tool_context: ToolContext) -> str:
        """Do d."""
        deeds.did("d")
        deeds.at("d")
        return f"d of {of} after {tool_context.state['a']}"

    def note(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        ended[tool.name].set()

    second = LlmAgent(name="second", instruction="Go on", description="Goes on", tools=[d])
    return LlmAgent(
        name="first",
        model=Scripted(model="scripted", folder=folder),
        instruction=deeds.prompt,
        tools=[a, b, c],
        after_tool_callback=note,
        sub_agents=[second],
    )


async def answer(ctx: StepContext, given: dict[str, Any]) -> list[Any]:
    folder = given["folder"]
    sessions = SqliteSessionService(str(Path(folder, "sessions.db")))
    runner = Runner(app_name="app", agent=agent(Deeds(folder), folder), session_service=sessions)
    texts: list[Any] = []
    with durable(ctx, runner, on_unknown=given.get("on_unknown")):
        session = await runner.session_service.create_session(**_WHO)
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=types.UserContent("Go")
        ):
            texts += [part.text for part in (event.content or types.Content()).parts or ()]
    (stored,) = (await sessions.list_sessions(**_WHO)).sessions
    found = await sessions.get_session(**_WHO, session_id=stored.id)
    assert found is not None
    return [*filter(None, texts), len(found.events)]


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="answer",
            handler=f"{__name__}:answer",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            max_retries=20,
            retry=RetryPolicy(first=timedelta(seconds=0.01), factor=1),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="answers", steps=("answer",))])
