"""Pydantic AI on Leasehold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.peers.agent import Probe, files, main
from bench.peers.leasehold_run import run_step
from bench.peers.pydantic_agent import NO_LIMIT, agent_of
from leasehold import StepContext
from leasehold.integrations.pydantic_ai import LeaseholdDurability, durable


async def look(ctx: StepContext, _: dict[str, Any]) -> str:
    """Run the agent."""
    agent = agent_of(Probe.here, LeaseholdDurability())
    with durable(ctx):
        return str((await agent.run("Look.", usage_limits=NO_LIMIT)).output)


def run(probe: Probe, folder: Path) -> None:
    """Run the step, or take it up."""
    run_step(probe, folder, "bench.peers.leasehold:look")


if __name__ == "__main__":
    main(run, files)
