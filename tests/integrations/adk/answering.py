"""A step whose agent calls three tools at once, and hands over to one that calls another tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
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

from leasehold import StepContext
from leasehold.integrations.adk import durable
from tests.integrations.kills import Deeds, pipelines_of, price_of, steps_of

#: How often the model is asked, and what each time costs, by the list.
TURNS: Final = 4
TOKENS: Final = 1_500
USD: Final = 0.00155
#: What the steps answer; the session has so many events in the end.
ANSWER: Final = "{d} after x, 8 events"
#: What a deploy that changes the prompt makes again, after a kill in d: its first difference.
AFTER_A_DEPLOY: Final = ["model 1", "model 2", "d"]
PROMPT: Final = "instructions"

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
        Deeds(self.folder).asked(turn)
        parts = {
            1: [_call(name, of="x") for name in "abc"],
            2: [_call("transfer_to_agent", agent_name="second")],
            3: [_call("d", of="x")],
            4: [types.Part(text=" ".join(results))],
        }[turn]
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=1_000,
            candidates_token_count=300,
            thoughts_token_count=200,
            total_token_count=TOKENS,
        )
        return LlmResponse(content=types.ModelContent(parts), usage_metadata=usage)


def _call(name: str, **args: str) -> types.Part:
    return types.Part.from_function_call(name=name, args=dict(args))


def agent(folder: str) -> LlmAgent:
    """Return the agent; it keeps in the session's state that it has called a."""
    deeds = Deeds(folder)

    async def a(of: str, tool_context: ToolContext) -> str:
        """Do a."""
        tool_context.state["a"] = of
        return await deeds.work("a", of)

    async def b(of: str) -> str:
        """Do b."""
        return await deeds.work("b", of)

    async def c(of: str) -> str:
        """Do c."""
        return await deeds.work("c", of)

    async def d(of: str) -> str:
        """Do d."""
        return await deeds.work("d", of)

    def note(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        deeds.recorded(tool.name)

    second = LlmAgent(name="second", instruction="Go on", description="Goes on", tools=[d])
    return LlmAgent(
        name="first",
        model=Scripted(model="gemini-2.5-flash", folder=folder),
        instruction=deeds.prompt,
        tools=[a, b, c],
        after_tool_callback=note,
        sub_agents=[second],
    )


async def answer(ctx: StepContext, given: dict[str, Any]) -> str:
    folder = given["folder"]
    sessions = SqliteSessionService(str(Path(folder, "sessions.db")))
    runner = Runner(app_name="app", agent=agent(folder), session_service=sessions)
    texts: list[str | None] = []
    with durable(ctx, runner, on_unknown=given.get("on_unknown"), price=price_of(given)):
        session = await runner.session_service.create_session(**_WHO)
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=types.UserContent("Go")
        ):
            texts += [part.text for part in (event.content or types.Content()).parts or ()]
    (stored,) = (await sessions.list_sessions(**_WHO)).sessions
    found = await sessions.get_session(**_WHO, session_id=stored.id)
    assert found is not None
    said = "".join(filter(None, texts))
    return f"{said} after {found.state['a']}, {len(found.events)} events"


STEPS = steps_of(__name__, "answer")
PIPELINES = pipelines_of(STEPS)
SPENDING: Final = ["answer"]
