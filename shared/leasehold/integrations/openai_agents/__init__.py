"""Agents of the OpenAI Agents SDK in a step: model calls, tools and sessions are recorded.

    async def research(ctx: StepContext, given: Question) -> Answer:
        with durable(ctx):
            result = await Runner.run(agent, given.text)
        return Answer(text=result.final_output)

All runs inside the block record: `run`, `run_sync` and `run_streamed`, those of agents that are
tools or get a hand-off, and those that guardrails start.
"""

from leasehold.integrations.openai_agents.runs import durable

__all__ = ["durable"]
