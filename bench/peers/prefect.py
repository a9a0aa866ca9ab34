"""Pydantic AI on Prefect, with a server of its own that keeps its state in SQLite."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from uuid import UUID

os.environ |= {
    "PREFECT_HOME": sys.argv[1],
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}

import prefect
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow_async
from prefect.states import Pending
from pydantic_ai.durable_exec.prefect import PrefectDurability

from bench.peers.agent import Probe, files, main
from bench.peers.pydantic_agent import NO_LIMIT, agent_of


def run(probe: Probe, folder: Path) -> None:
    """Run the agent in a flow; one that was killed goes on as the same run of the flow."""
    agent = agent_of(probe, PrefectDurability())
    note = folder / "flow-run"

    @prefect.flow(name="look", persist_result=True)
    async def look() -> str:
        return str((await agent.run("Look.", usage_limits=NO_LIMIT)).output)

    async def whole() -> None:
        async with get_client() as client:
            await client.api_healthcheck()  # the start of its server is not counted
            probe.begin()
            if note.exists():
                found = UUID(note.read_text())
                await client.set_flow_run_state(found, Pending(), force=True)
            else:
                found = (await client.create_flow_run(look)).id
                note.write_text(str(found))
            flow_run = await client.read_flow_run(found)
        await run_flow_async(look, flow_run=flow_run, parameters={})

    asyncio.run(whole())


if __name__ == "__main__":
    main(run, files)
