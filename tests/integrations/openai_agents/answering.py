"""A step whose agent calls three tools at once, and hands off to one that calls another tool."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from typing import Any, Final

from agents import (
    Agent,
    Model,
    ModelProvider,
    RunConfig,
    RunHooks,
    Runner,
    Tool,
    Usage,
    function_tool,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from leasehold import PipelineEntry, Registry, RetryPolicy, StepContext, StepDispatchEntry
from leasehold.integrations.openai_agents import durable
from tests.integrations.kills import Deeds

TOKENS: Final = 7


class Models(ModelProvider):
    """Models that go by the results in their input, as each process begins with none.

    Args:
        deeds: which notes their calls.
    """

    def __init__(self, deeds: Deeds) -> None:
        self._deeds = deeds

    def get_model(self, _: str | None) -> Model:
        return ScriptedModel([ModelStep.respond(self._answer)] * 10)

    def _answer(self, call: Any) -> ModelStep:
        results = [each["output"] for each in call.input if each.get("output")]
        turn = {0: 1, 3: 2, 4: 3, 5: 4}[len(results)]
        self._deeds.did(f"model {turn}")
        self._deeds.at(f"model {turn}")
        output = {
            1: [function_call(name, {"of": "x"}, call_id=f"call-{name}") for name in "abc"],
            2: [function_call("transfer_to_second", {}, call_id="call-second")],
            3: [function_call("d", {"of": "x"}, call_id="call-d")],
            4: [assistant_message(f"{call.system_instructions}: {' '.join(results)}")],
        }[turn]
        return ModelStep(output, Usage(requests=1, total_tokens=TOKENS))


def tools(deeds: Deeds, ended: dict[str, asyncio.Event]) -> list[Tool]:
    @function_tool
    async def a(of: str) -> str:
        deeds.did("a")
        return f"a of {of}"

    @function_tool
    async def b(of: str) -> str:
        deeds.did("b")
        await ended["a"].wait()
        deeds.at("b")
        return f"b of {of}"

    @function_tool
    async def c(of: str) -> str:
        deeds.did("c")
        await ended["b"].wait()
        return f"c of {of}"

    return [a, b, c]


class Ended(RunHooks[None]):
    """Notes which tools have ended, and so are recorded."""

    def __init__(self) -> None:
        self.events: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def on_tool_end(self, _: Any, __: Any, tool: Tool, ___: object) -> None:
        self.events[tool.name].set()


async def answer(ctx: StepContext, given: dict[str, Any]) -> str:
    deeds, hooks = Deeds(given["folder"]), Ended()

    @function_tool
    def d(of: str) -> str:
        deeds.did("d")
        deeds.at("d")
        return f"d of {of}"

    second = Agent("second", instructions="Go on", tools=[d])
    first = Agent(
        "first",
        instructions=deeds.prompt,
        tools=tools(deeds, hooks.events),
        handoffs=[second],
    )
    config = RunConfig(model_provider=Models(deeds), tracing_disabled=True)
    with durable(ctx, on_unknown=given.get("on_unknown")):
        if given.get("streamed"):
            streamed = Runner.run_streamed(first, "Go", hooks=hooks, run_config=config)
            async for _ in streamed.stream_events():
                pass
            return str(streamed.final_output)
        return str((await Runner.run(first, "Go", hooks=hooks, run_config=config)).final_output)


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
