"""A list of items on Celery: a chord, with Redis as its broker and for its results."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from celery import Celery, chord

from bench.peers.items import item, join, main

REDIS = os.environ["BENCH_REDIS"]
app = Celery("bench.peers.each_celery", broker=REDIS, backend=REDIS)


@app.task
def one(_: int) -> float:
    """Do an item."""
    return item()


@app.task
def merge(times: list[float]) -> float:
    """Join them."""
    return join(times)


def run(_: Path, runs: int, items: int) -> tuple[float, list[float]]:
    """Start the chords, and wait for each; the worker has a process a core."""
    command = [sys.executable, "-m", "celery", "-A", "bench.peers.each_celery", "worker"]
    worker = subprocess.Popen(  # noqa: S603 - a worker of ours
        [*command, "--loglevel=ERROR"], stdout=subprocess.DEVNULL
    )
    while not app.control.ping(timeout=0.5):
        pass
    began = time.monotonic()
    started = [chord(one.s(n) for n in range(items))(merge.s()) for _ in range(runs)]
    joins = [result.get() for result in started]
    worker.terminate()
    worker.wait()
    return began, joins


if __name__ == "__main__":
    main(run)
