"""LangChain's agent with the middleware of Leasehold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.peers.agent import Probe, files, main
from bench.peers.langgraph_agent import GIVEN, NO_LIMIT, agent_of
from bench.peers.leasehold_run import run_step
from leasehold import StepContext
from leasehold.integrations.langgraph import LeaseholdMiddleware, durable


async def look(ctx: StepContext, _: dict[str, Any]) -> str:
    """Run the agent."""
    agent = agent_of(middleware=[LeaseholdMiddleware()])
    with durable(ctx):
        state = await agent.ainvoke(GIVEN, NO_LIMIT)
    return str(state["messages"][-1].text)


def run(probe: Probe, folder: Path) -> None:
    """Run the step, or take it up."""
    run_step(probe, folder, "bench.peers.leasehold_langgraph:look")


if __name__ == "__main__":
    main(run, files)
