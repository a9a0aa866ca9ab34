"""Pydantic AI alone: nothing is kept."""

import asyncio
from pathlib import Path

from bench.peers.agent import Probe, main
from bench.peers.pydantic_agent import NO_LIMIT, agent_of


def run(probe: Probe, _: Path) -> None:
    """Run the agent."""
    agent = agent_of(probe, None)
    probe.begin()
    asyncio.run(agent.run("Look.", usage_limits=NO_LIMIT))


if __name__ == "__main__":
    main(run, lambda _: 0)
