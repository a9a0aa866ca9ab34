"""A list of items on Leasehold, with its SQLite store, as `leasehold serve` has it."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.peers.items import item, join, main
from leasehold import Each, PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.in_process import InProcessEngine

WORKERS = 4


def split(_: StepContext, given: int) -> list[int]:
    """Make the items."""
    return list(range(given))


def one(_: StepContext, __: Any) -> float:
    """Do an item."""
    return item()


def merge(_: StepContext, given: list[float]) -> float:
    """Join them."""
    return join(given)


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=f"bench.peers.each_leasehold:{name}",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            isolation="inline",
        )
        for name in ("split", "one", "merge")
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name="list", steps=("split", Each("one"), "merge"))]
)


def run(folder: Path, runs: int, items: int) -> tuple[float, list[float]]:
    """Start the runs, and wait for each."""
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{folder}/runs.db",
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
    }
    with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=WORKERS) as engine:
        began = time.monotonic()
        started = [engine.start("list", items).run_id for _ in range(runs)]
        ended = [engine.wait(run_id) for run_id in started]
        return began, [float(end.steps["merge"].output or "") for end in ended]


if __name__ == "__main__":
    main(run)
