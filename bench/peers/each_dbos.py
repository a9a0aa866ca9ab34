"""A list of items on DBOS: a workflow that enqueues a workflow an item, and waits for each."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dbos import DBOS

from bench.peers.items import item, join, main

QUEUE = "items"


@DBOS.workflow()
def one(_: int) -> float:
    """Do an item."""
    return item()


@DBOS.step()
def merge(times: list[float]) -> float:
    """Join them."""
    return join(times)


@DBOS.workflow()
def whole(items: int) -> float:
    """Work on a list."""
    handles = [DBOS.enqueue_workflow(QUEUE, one, number) for number in range(items)]
    return merge([handle.get_result() for handle in handles])


def run(_: Path, runs: int, items: int) -> tuple[float, list[float]]:
    """Start the runs, and wait for each."""
    url = os.environ["BENCH_DATABASE"]
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    DBOS.register_queue(QUEUE)
    began = time.monotonic()
    handles = [DBOS.start_workflow(whole, items) for _ in range(runs)]
    joins = [handle.get_result() for handle in handles]
    DBOS.destroy()
    return began, joins


if __name__ == "__main__":
    main(run)
