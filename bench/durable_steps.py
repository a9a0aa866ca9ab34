"""Durable no-op steps on SQLite, against the raw floor of two durable transactions a step.

The floor does what no engine can do with less: a thread reads a document as large as a manifest
and writes it back, twice a step, each time in a transaction with a full sync. The engine does the
same work with leases, fencing, alarms and the outbox, and the start of each run besides.

Alone, one thread does it all, like the floor's. Together, there are as many workers as threads of
the floor. The time of a step is what a caller sees who starts a run and waits for its end, with
the engine's own thread in between. Its CPU is that of all threads of the process.

With `--beside` another checkout, or another commit of this one, is measured as well, turn by turn,
each in its own process: what the machine does meanwhile, it does to both.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from bench.measuring import Figure, figure, report
from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.in_process import InProcessEngine

STEPS_A_RUN: Final = 3
TOGETHER: Final = 32


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


class Pace(NamedTuple):
    """How fast steps went, and the CPU milliseconds of one; a document's bytes."""

    steps_a_second: float
    size: int
    cpu_ms: float


def steps_a_second_alone(folder: Path, runs: int) -> Pace:
    """Return the pace of one thread that starts and runs them all."""
    with _engine(folder, workers=0) as engine:
        size = _warmed_up(engine)
        began = _now()
        for number in range(runs):
            engine.run("no-op", {"number": number})
        return _pace(began, runs * STEPS_A_RUN, size)


def steps_a_second_together(folder: Path, runs: int, at_once: int) -> Pace:
    """Return the pace of as many workers as runs at once."""
    slots, done = threading.Semaphore(at_once), threading.Semaphore(0)
    with _engine(folder, workers=at_once) as engine:
        size = _warmed_up(engine)
        engine.on_idle(lambda _: _release(slots, done))
        began = _now()
        for number in range(runs):
            slots.acquire()
            engine.start("no-op", {"number": number})
        for _ in range(runs):
            done.acquire()
        return _pace(began, runs * STEPS_A_RUN, size)


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _pace(began: tuple[float, float], steps: int, size: int) -> Pace:
    seconds, cpu = (now - then for now, then in zip(_now(), began, strict=True))
    return Pace(steps / seconds, size, cpu / steps * 1000)


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
) -> tuple[Pace, float]:
    """Return the pace of bare SQLite, and the median step's milliseconds."""
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

    began = _now()
    _in_threads(work, threads)
    return _pace(began, len(took), size), median(took) * 1000


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


def _in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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
            ours = steps_a_second_alone(folder, runs)
            floor, floor_ms = floor_steps_a_second(folder, steps=steps, threads=1, size=ours.size)
            alone.append((ours, floor))
        with _folder() as folder:
            latency.append((step_milliseconds(folder, runs), floor_ms))
        with _folder() as folder:
            ours = steps_a_second_together(folder, runs, at_once=TOGETHER)
            floor, _ = floor_steps_a_second(folder, steps=steps, threads=TOGETHER, size=ours.size)
            together.append((ours, floor))
    cpu = "CPU of a durable step"
    return [
        figure("durable steps, 1 run at once", "steps/s", _speeds(alone), at_least=0.6),
        figure("durable steps, 32 runs at once", "steps/s", _speeds(together), at_least=1.0),
        figure("engine time of a step, one run alone", "ms", latency, at_most=3.0),
        figure(f"{cpu}, 1 run at once", "ms", _cpu(alone), value_at_most=0.3),
        figure(f"{cpu}, 32 runs at once", "ms", _cpu(together), value_at_most=0.3),
    ]


def measure_beside(other: Path, rounds: int, runs: int) -> list[Figure]:
    """Return the figures of this checkout, with those of another one as their floor."""
    here = Path(__file__).parents[1]
    alone, together = [], []
    for number in range(rounds):
        order = (here, other) if number % 2 else (other, here)  # no one always comes first
        found = {checkout: _measured_in(checkout, runs) for checkout in order}
        alone.append((found[here][0], found[other][0]))
        together.append((found[here][1], found[other][1]))
    cpu = "CPU of a durable step"
    return [
        figure("durable steps, 1 run at once", "steps/s", _speeds(alone), at_least=1.15),
        figure("durable steps, 32 runs at once", "steps/s", _speeds(together), at_least=1.3),
        figure(f"{cpu}, 1 run at once", "ms", _cpu(alone), at_most=1.0),
        figure(f"{cpu}, 32 runs at once", "ms", _cpu(together), at_most=1.0),
    ]


def _speeds(rounds: Iterable[tuple[Pace, Pace]]) -> list[tuple[float, float]]:
    return [(ours.steps_a_second, floor.steps_a_second) for ours, floor in rounds]


def _cpu(rounds: Iterable[tuple[Pace, Pace]]) -> list[tuple[float, float]]:
    return [(ours.cpu_ms, floor.cpu_ms) for ours, floor in rounds]


#: Measures the checkout that it finds first, whatever else that one's benchmark returns. The CPU
#: is that of a whole call, with the engine's opening and end, once imports and models are there.
_PROBE: Final = """
import json, sys, time, pathlib, tempfile
from bench import durable_steps
runs, at_once = map(int, sys.argv[1:])
alone, together = durable_steps.steps_a_second_alone, durable_steps.steps_a_second_together

def measured(measure, runs, *further):
    with tempfile.TemporaryDirectory() as name:
        began = time.process_time()
        rate, size, *_ = measure(pathlib.Path(name), runs, *further)
        cpu = (time.process_time() - began) / runs / durable_steps.STEPS_A_RUN * 1000
    return rate, size, cpu

measured(alone, 1)
print(json.dumps([measured(alone, runs), measured(together, runs, at_once)]))
"""


def _measured_in(checkout: Path, runs: int) -> list[Pace]:
    """Return the paces alone and together of a checkout, in its own process."""
    path = os.pathsep.join([str(checkout / "shared"), str(checkout)])
    command = [sys.executable, "-c", _PROBE, str(runs), str(TOGETHER)]
    environ = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(  # noqa: S603 - our own interpreter and text
        command, env=environ, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True
    )
    return [Pace(*pace) for pace in json.loads(done.stdout)]


@contextmanager
def _checkout(of: str) -> Iterator[Path]:
    """Yield the folder of a checkout; of a commit, one that is there for as long as this runs."""
    if Path(of).is_dir():
        yield Path(of).resolve()
        return
    git = ["git", "-C", str(Path(__file__).parent), "worktree"]
    with _folder() as folder:
        subprocess.run([*git, "add", "--quiet", "--detach", folder / of, of], check=True)  # noqa: S603 - what the caller names
        try:
            yield folder / of
        finally:
            subprocess.run([*git, "remove", "--force", folder / of], check=True)  # noqa: S603 - as above


@contextmanager
def _folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--beside", help="a checkout or a commit, measured in the same run")
    given = parser.parse_args()
    report("durable_steps", measure(given.rounds, given.runs))
    if given.beside:
        with _checkout(given.beside) as other:
            report("durable_steps_beside", measure_beside(other, given.rounds, given.runs))


if __name__ == "__main__":
    main()
