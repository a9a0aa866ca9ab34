"""Pydantic AI on DBOS, with its SQLite database."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dbos import DBOS, SetWorkflowID
from pydantic_ai.durable_exec.dbos import DBOSDurability

from bench.peers.agent import Probe, files, main
from bench.peers.pydantic_agent import NO_LIMIT, agent_of


def run(probe: Probe, folder: Path) -> None:
    """Run the agent in a workflow; one that was killed is recovered by its id."""
    url = f"sqlite:///{folder}/dbos.sqlite"
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    agent = agent_of(probe, DBOSDurability(), DBOS.step())  # tools are not steps by themselves

    @DBOS.workflow(name="look")
    async def look() -> str:
        return str((await agent.run("Look.", usage_limits=NO_LIMIT)).output)

    async def whole() -> None:
        DBOS.launch()
        probe.begin()
        with SetWorkflowID("the-run"):
            handle = await DBOS.start_workflow_async(look)
        await handle.get_result()

    asyncio.run(whole())
    DBOS.destroy()


if __name__ == "__main__":
    main(run, files)
