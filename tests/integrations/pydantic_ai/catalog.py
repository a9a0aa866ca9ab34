"""An agent with two tools on a model that follows a script, and the step that it works in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from leasehold import PipelineEntry, Registry, RetryPolicy, StepContext, StepDispatchEntry
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable
from tests.integrations.kills import Deeds

AT_ONCE = 8
#: The tokens of each response, and what they cost by the prices of the library, in dollars.
USAGE = RequestUsage(input_tokens=1_000, output_tokens=500)
USD = 0.0075


@dataclass
class Deps:
    deeds: Deeds


def script(deeds: Deeds) -> Any:
    """Return a model: it searches, fetches all that was found at once, and answers."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = parts_of(messages, info)
        return ModelResponse(parts, usage=USAGE, provider_name="openai")

    def parts_of(messages: list[ModelMessage], info: AgentInfo) -> list[Any]:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        deeds.did(f"model {turn}")
        deeds.at(f"model {turn}")
        if turn == 0:
            return [ToolCallPart("search", {"words": "leases"}, "id-s")]
        if turn == 1:
            return [ToolCallPart("fetch", {"page": page}, f"id-{page}") for page in range(AT_ONCE)]
        fetched = [part.content for part in messages[-1].parts]
        return [TextPart(f"{info.instructions} {' '.join(map(str, fetched))}")]

    return FunctionModel(answer, model_name="gpt-4o")


async def search(ctx: RunContext[Deps], words: str) -> list[str]:
    ctx.deps.deeds.did(f"search {words}")
    ctx.deps.deeds.at("search")
    return [words]


async def fetch(ctx: RunContext[Deps], page: int) -> str:
    ctx.deps.deeds.did(f"fetch {page}")
    ctx.deps.deeds.at(f"fetch {page}")
    return f"page {page}"


async def research(ctx: StepContext, given: dict[str, Any]) -> str:
    deeds = Deeds(given["folder"])
    prompt = (Path(given["folder"]) / "prompt").read_text()
    agent = Agent(
        script(deeds),
        name="researcher",
        deps_type=Deps,
        instructions=prompt,
        tools=[search, fetch],
        capabilities=[LeaseholdDurability()],
    )
    with durable(ctx):
        result = await agent.run("What is a lease?", deps=Deps(deeds))
    return result.output


async def pay(ctx: StepContext, given: dict[str, Any]) -> str:
    """Have an agent pay, and never twice."""
    deeds = Deeds(given["folder"])

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse([ToolCallPart("charge", {"usd": 5}, "id-c")])
        return ModelResponse([TextPart(str(messages[-1].parts[0].content))])

    agent = Agent(FunctionModel(answer), name="payer", capabilities=[LeaseholdDurability()])

    @agent.tool_plain(metadata={"leasehold": {"on_unknown": "ask"}})
    async def charge(usd: int) -> str:
        deeds.did(f"charge {usd}")
        deeds.at("charge")
        return f"charged {usd}"

    with durable(ctx):
        return (await agent.run("Pay five dollars.")).output


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        max_retries=5,
        retry=RetryPolicy(first=timedelta(seconds=0.01), factor=1),
    )


STEPS = Registry("dispatch", [_entry("research"), _entry("pay")])
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="research", steps=("research",)),
        PipelineEntry(name="pay", steps=("pay",)),
    ],
)
GATES = Registry("gates", [])
