"""An agent in whose tool a test has something happen, and the catalog that names it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable

MADE: list[str] = []
DOES: list[Callable[[], object]] = []

agent = Agent(TestModel(), name="away", capabilities=[LeaseholdDurability()])


@agent.tool_plain
def go() -> str:
    MADE.append("go")
    if DOES:
        DOES.pop()()
    return "gone"


async def away(ctx: StepContext, given: None) -> str:
    with durable(ctx):
        return (await agent.run("Go!")).output


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="away",
            handler=f"{__name__}:away",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="away", steps=("away",))])
GATES = Registry("gates", [])
