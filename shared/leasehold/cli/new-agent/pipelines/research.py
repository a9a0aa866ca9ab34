"""The step of the pipeline `research`: an agent with two tools.

Each request of its model and each call of a tool is recorded. An attempt that comes later, after a
crash, a deploy or a limit of time, is given the results and goes on.
"""

import os

from pydantic import BaseModel
from pydantic_ai import Agent

from leasehold import StepContext
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable


class Question(BaseModel):
    """The input of the pipeline."""

    text: str


class Report(BaseModel):
    """The output of the step."""

    text: str


researcher = Agent(
    os.environ.get("AGENT_MODEL", "test"),  # `test` calls each tool once and costs nothing
    name="researcher",  # a part of the names of its recorded calls
    instructions="Answer in two sentences, from the library.",
    capabilities=[LeaseholdDurability()],
)


@researcher.tool_plain
async def search(words: str) -> list[str]:
    """Return the titles of books about something."""
    return [f"All about {words}"]  # in truth, a search that is paid for


@researcher.tool_plain
async def read(title: str) -> str:
    """Return what a book says, in short."""
    return f"{title}: a right that ends soon."  # in truth, a download


async def research(ctx: StepContext, question: Question) -> Report:
    """Have the agent answer a question."""
    with durable(ctx):
        answer = await researcher.run(question.text)
    return Report(text=answer.output)
