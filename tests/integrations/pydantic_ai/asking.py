"""An agent that asks a person in the middle of its run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, RunContext
from pydantic_ai.capabilities.request_input import RequestInput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable

MADE: list[str] = []
TOKENS: list[str] = []


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    MADE.append("model")
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("pay", {"usd": 5}, "id-p")])
    return ModelResponse([TextPart(str(messages[-1].parts[0].content))])


async def ask(_: Any, requests: DeferredToolRequests, token: str) -> None:
    MADE.append(f"asked {len(requests.approvals)}")
    TOKENS.append(token)


def payer_of(timeout: timedelta | None, *, asks_first: bool = True) -> Agent[None, str]:
    """Return an agent whose tool needs an approval; if not `asks_first`, it says so when called."""
    payer = Agent(
        FunctionModel(answer),
        name="payer",
        capabilities=[LeaseholdDurability(), RequestInput(ask, timeout=timeout)],
    )

    @payer.tool(requires_approval=asks_first)
    def pay(ctx: RunContext[None], usd: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        MADE.append(f"paid {usd}")
        return f"paid {usd}"

    return payer


AGENTS = {
    "patient": payer_of(None),
    "hasty": payer_of(timedelta(minutes=1)),
    "careless": payer_of(None, asks_first=False),
}


async def pay(ctx: StepContext, given: str) -> str:
    with durable(ctx):
        result = await AGENTS[given].run("Pay five dollars.")
    return str(result.output)


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="pay",
            handler=f"{__name__}:pay",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="payment", steps=("pay",))])
