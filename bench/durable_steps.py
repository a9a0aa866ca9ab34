"""Durable no-op steps on SQLite, against the raw floor of two durable transactions a step.

The floor does what no engine can do with less: a thread reads a document as large as a manifest
and writes it back, twice a step, each time in a transaction with a full sync. The engine does the
same work with leases, fencing, alarms and the outbox, and the start of each run besides.

Alone, one thread does it all, like the floor's. Together, there are as many workers as threads of
the floor. The time of a step is what a caller sees who starts a run and waits for its end, with
the engine's own thread in between.
"""

from __future__ import annotations

import argparse
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
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


def steps_a_second_alone(folder: Path, runs: int) -> tuple[float, int]:
    """Return the steps a second of one thread that starts and runs them all, a manifest's bytes."""
    with _engine(folder, workers=0) as engine:
        size = _warmed_up(engine)
        started = time.perf_counter()
        for number in range(runs):
            engine.run("no-op", {"number": number})
        seconds = time.perf_counter() - started
    return runs * STEPS_A_RUN / seconds, size


def steps_a_second_together(folder: Path, runs: int, at_once: int) -> tuple[float, int]:
    """Return the steps a second of as many workers as runs at once, and a manifest's bytes."""
    slots, done = threading.Semaphore(at_once), threading.Semaphore(0)
    with _engine(folder, workers=at_once) as engine:
        size = _warmed_up(engine)
        engine.on_idle(lambda _: _release(slots, done))
        started = time.perf_counter()
        for number in range(runs):
            slots.acquire()
            engine.start("no-op", {"number": number})
        for _ in range(runs):
            done.acquire()
        seconds = time.perf_counter() - started
    return runs * STEPS_A_RUN / seconds, size


def step_milliseconds(folder: Path, runs: int) -> float:
    """Return the median step's share of a run alone, from its start until a caller is told."""
    done = threading.Semaphore(0)
    took = []
    with _engine(folder, workers=1) as engine:
        _warmed_up(engine)
        engine.on_idle(lambda _: done.release())
        for number in range(runs):
            began = time.perf_counter()
            engine.start("no-op", {"number": number})
            done.acquire()
            took.append((time.perf_counter() - began) / STEPS_A_RUN)
    return median(took) * 1000


def _warmed_up(engine: InProcessEngine) -> int:
    """Run one run to its end; return the bytes of its manifest."""
    run = engine.start("no-op", {"warm": "up"})
    engine.run_until_idle()
    return len(engine.wait(run.run_id).model_dump_json(exclude_none=True))


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
    """Return the figures; each round measures engine and floor one after the other."""
    alone, together, latency = [], [], []
    steps = runs * STEPS_A_RUN
    for _ in range(rounds):
        with _folder() as folder:
            ours, size = steps_a_second_alone(folder, runs)
            floor, floor_ms = floor_steps_a_second(folder, steps=steps, threads=1, size=size)
            alone.append((ours, floor))
        with _folder() as folder:
            latency.append((step_milliseconds(folder, runs), floor_ms))
        with _folder() as folder:
            ours, size = steps_a_second_together(folder, runs, at_once=32)
            floor, _ = floor_steps_a_second(folder, steps=steps, threads=32, size=size)
            together.append((ours, floor))
    return [
        figure("durable steps, 1 run at once", "steps/s", alone, at_least=0.6),
        figure("durable steps, 32 runs at once", "steps/s", together, at_least=1.0),
        figure("engine time of a step, one run alone", "ms", latency, at_most=3.0),
    ]


@contextmanager
def _folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=400)
    given = parser.parse_args()
    report("durable_steps", measure(given.rounds, given.runs))


if __name__ == "__main__":
    main()
