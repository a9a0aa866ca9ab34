"""Agents of the OpenAI Agents SDK in a step: model calls, tools and sessions are recorded.

    async def research(ctx: StepContext, given: Question) -> Answer:
        with durable(ctx):
            result = await Runner.run(agent, given.text)
        return Answer(text=result.final_output)

All runs inside the block record: `run`, `run_sync` and `run_streamed`, those of agents that are
tools or get a hand-off, and those that guardrails start.
"""

from leasehold.registry.extras import require_extra

require_extra("openai-agents", __name__)

from leasehold.integrations.openai_agents.runs import (  # noqa: E402 - it imports the library
    durable,
)
from leasehold.integrations.prices import Used  # noqa: E402 - as above

__all__ = ["Used", "durable"]
