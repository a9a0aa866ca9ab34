"""LangChain's agent with LangGraph's saver for SQLite."""

from __future__ import annotations

import asyncio
from pathlib import Path

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.peers.agent import Probe, files, main
from bench.peers.langgraph_agent import GIVEN, NO_LIMIT, agent_of


def run(probe: Probe, folder: Path) -> None:
    """Run the agent; where it was killed, it goes on from its last checkpoint."""

    async def whole() -> None:
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/checkpoints.db") as saver:
            await saver.setup()
            probe.begin()
            config = {"configurable": {"thread_id": "the-run"}, **NO_LIMIT}
            is_there = await saver.aget_tuple(config) is not None
            agent = agent_of(checkpointer=saver)
            await agent.ainvoke(None if is_there else GIVEN, config, durability="sync")

    asyncio.run(whole())


if __name__ == "__main__":
    main(run, files)
