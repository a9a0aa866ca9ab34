"""Durable no-op steps on SQLite, against the raw floor of two durable transactions a step.

The floor does what no engine can do with less: a thread reads a document as large as a manifest
and writes it back, twice a step, each time in a transaction with a full sync. The engine does the
same work with leases, fencing, alarms and the outbox, and one transaction more for each run.
"""

from __future__ import annotations

import argparse
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.measuring import Figure, figure, report
from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.in_process import InProcessEngine

STEPS_A_RUN: Final = 3


def no_op(ctx: StepContext, given: Any) -> Any:  # noqa: ARG001 - a handler's shape
    """Do nothing, durably."""
    return given


STEPS: Final = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler="bench.durable_steps:no_op",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            isolation="inline",
        )
        for name in ("first", "second", "third")
    ],
)
PIPELINES: Final = Registry(
    "pipelines", [PipelineEntry(name="no-op", steps=("first", "second", "third"))]
)


def steps_a_second(folder: Path, *, runs: int, at_once: int) -> tuple[float, float, int]:
    """Return the engine's steps a second, the median step's milliseconds, a manifest's bytes."""
    slots = threading.Semaphore(at_once)
    done = threading.Semaphore(0)

    with _engine(folder, at_once) as engine:
        run = engine.start("no-op", {"warm": "up"})
        engine.wait(run.run_id)
        size = len(engine.show(run.run_id).model_dump_json(exclude_none=True))
        engine.on_rest(lambda _: _release(slots, done))
        took = []
        started = time.perf_counter()
        for number in range(runs):
            slots.acquire()
            began = time.perf_counter()
            engine.start("no-op", {"number": number})
            if at_once == 1:
                done.acquire()
                took.append((time.perf_counter() - began) / STEPS_A_RUN)
        if at_once > 1:
            for _ in range(runs):
                done.acquire()
        seconds = time.perf_counter() - started
    return runs * STEPS_A_RUN / seconds, median(took or [0.0]) * 1000, size


def _release(*semaphores: threading.Semaphore) -> None:
    for semaphore in semaphores:
        semaphore.release()


def floor_steps_a_second(
    folder: Path, *, steps: int, threads: int, size: int
) -> tuple[float, float]:
    """Return the steps a second of bare SQLite, and the median step's milliseconds."""
    path = folder / "floor.db"
    took: list[float] = []
    with closing(_connect(path)) as setup:
        setup.execute("PRAGMA journal_mode = WAL")
        setup.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, version INTEGER, body TEXT)")
        body = "x" * size
        setup.executemany("INSERT INTO runs VALUES (?, 1, ?)", [(i, body) for i in range(threads)])

    def work(number: int) -> None:
        with closing(_connect(path)) as connection:
            for _ in range(steps // threads):
                began = time.perf_counter()
                _transaction(connection, number)
                _transaction(connection, number)
                took.append(time.perf_counter() - began)

    seconds = _in_threads(work, threads)
    return steps / seconds, median(took) * 1000


def _transaction(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    version, body = connection.execute(
        "SELECT version, body FROM runs WHERE id = ?", (number,)
    ).fetchone()
    connection.execute(
        "UPDATE runs SET version = ?, body = ? WHERE id = ?", (version + 1, body, number)
    )
    connection.execute("COMMIT")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=120, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _in_threads(work: Callable[[int], None], count: int) -> float:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def _engine(folder: Path, workers: int) -> InProcessEngine:
    environ = {
        "LEASEHOLD_STORE": f"sqlite:///{folder / 'engine.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
    }
    return InProcessEngine(STEPS, PIPELINES, environ=environ, workers=workers)


def measure(rounds: int, runs: int) -> list[Figure]:
    """Return the figures of issue and floor, each round one after the other in one folder."""
    alone, together, latency = [], [], []
    for _ in range(rounds):
        with TemporaryDirectory() as name:
            folder = Path(name)
            ours, step_ms, size = steps_a_second(folder, runs=runs, at_once=1)
            floor, floor_ms = floor_steps_a_second(
                folder, steps=runs * STEPS_A_RUN, threads=1, size=size
            )
            alone.append((ours, floor))
            latency.append((step_ms, floor_ms))
        with TemporaryDirectory() as name:
            folder = Path(name)
            ours, _, size = steps_a_second(folder, runs=runs, at_once=32)
            floor, _ = floor_steps_a_second(folder, steps=runs * STEPS_A_RUN, threads=32, size=size)
            together.append((ours, floor))
    return [
        figure("durable steps, 1 run at once", "steps/s", alone, at_least=0.6),
        figure("durable steps, 32 runs at once", "steps/s", together, at_least=1.0),
        figure("engine time of a step, one run alone", "ms", latency, at_most=3.0),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=400)
    given = parser.parse_args()
    report("durable_steps", measure(given.rounds, given.runs))


if __name__ == "__main__":
    main()
