"""An agent that asks a person before it pays: a step before the answer, and one after it."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable

MADE: list[str] = []


class Asked(BaseModel):
    """The conversation so far, what is to be approved, and what a person says of it."""

    messages: str
    calls: dict[str, str]
    approvals: dict[str, bool] = {}


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    MADE.append("model")
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("pay", {"usd": 5}, "id-p")])
    return ModelResponse([TextPart(str(messages[-1].parts[0].content))])


payer = Agent(
    FunctionModel(answer),
    name="payer",
    output_type=[str, DeferredToolRequests],
    capabilities=[LeaseholdDurability()],
)


@payer.tool_plain(requires_approval=True)
def pay(usd: int) -> str:
    MADE.append(f"paid {usd}")
    return f"paid {usd}"


async def plan(ctx: StepContext, given: str) -> Asked:
    with durable(ctx):
        result = await payer.run(given)
    calls = {call.tool_call_id: call.args_as_json_str() for call in result.output.approvals}
    return Asked(messages=result.all_messages_json().decode(), calls=calls)


def approved(ctx: GateContext, output: Asked) -> None:
    """Refuse calls that no person has answered."""
    if output.calls.keys() - output.approvals.keys():
        raise GatePolicyFailure("approved", "A payment waits for a person.", "Approve it.")


async def act(ctx: StepContext, given: Asked) -> str:
    with durable(ctx):
        result = await payer.run(
            message_history=ModelMessagesTypeAdapter.validate_json(given.messages),
            deferred_tool_results=DeferredToolResults(approvals=given.approvals),
        )
    return str(result.output)


def _entry(name: str, *gates: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=10),
        dispatch_deadline=timedelta(minutes=15),
        gates=gates,
    )


STEPS = Registry("dispatch", [_entry("plan", "approved"), _entry("act")])
PIPELINES = Registry("pipelines", [PipelineEntry(name="payments", steps=("plan", "act"))])
GATES = Registry("gates", [GateEntry(name="approved", check=f"{__name__}:approved")])
