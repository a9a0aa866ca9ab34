"""LangChain's agent with the saver of Leasehold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.peers.agent import Probe, files, main
from bench.peers.langgraph_agent import GIVEN, NO_LIMIT, agent_of
from bench.peers.leasehold_run import run_step
from leasehold import StepContext
from leasehold.integrations.langgraph import LeaseholdSaver


async def look(ctx: StepContext, _: dict[str, Any]) -> str:
    """Run the agent; where it was killed, it goes on from its last checkpoint."""
    saver = LeaseholdSaver(ctx)
    agent = agent_of(checkpointer=saver)
    state = await agent.ainvoke(GIVEN, {**saver.config(), **NO_LIMIT}, durability="sync")
    return str(state["messages"][-1].text)


def run(probe: Probe, folder: Path) -> None:
    """Run the step, or take it up."""
    run_step(probe, folder, "bench.peers.leasehold_saver:look")


if __name__ == "__main__":
    main(run, files)
