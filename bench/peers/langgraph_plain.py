"""LangChain's agent alone: nothing is kept."""

import asyncio
from pathlib import Path

from bench.peers.agent import Probe, main
from bench.peers.langgraph_agent import GIVEN, NO_LIMIT, agent_of


def run(probe: Probe, _: Path) -> None:
    """Run the agent."""
    probe.begin()
    asyncio.run(agent_of().ainvoke(GIVEN, NO_LIMIT))


if __name__ == "__main__":
    main(run, lambda _: 0)
