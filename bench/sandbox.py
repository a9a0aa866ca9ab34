"""What a sandbox costs: a step's time, the memory of a worker, and how late a kill or a stop is.

Steps whose process is used again are counted beside the same steps in fresh ones, turn by turn, by
an engine with as many workers as there are cores and a few more.

The floor of a step's time is the least that a child can be had for in Python: a process of
`multiprocessing`, forked from a warm fork server that has imported as much, which gets one value
by a pipe and returns it. The engine runs the same step inline and in a sandbox, turn by turn with
the floor, and what the sandbox adds is compared with it.

The floor of the others is the limit they must keep, so a ratio up to 1 holds.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.bare_children import BareChildren
from bench.crash_bundle import CLOCK, bundle
from bench.measuring import Figure, figure, report
from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.devserver.server_process import running_processes
from leasehold.in_process import InProcessEngine
from tests.worlds.waiting import until

STOP_MS: Final = 200.0
KILL_MS: Final = 500.0
CHILD_MIB: Final = 25.0
REST_S: Final = 1.5
WORKERS: Final = (os.cpu_count() or 1) + 2
STEPS_A_RUN: Final = 3
HARD_LIMIT: Final = timedelta(seconds=1)


def _step(name: str, handler: str, **more: Any) -> StepDispatchEntry:
    limits = {"agent_timeout": timedelta(minutes=1), "dispatch_deadline": timedelta(minutes=2)}
    return StepDispatchEntry(
        step_type=name, handler=f"bench.bare_steps:{handler}", **(limits | more)
    )


STEPS: Final = Registry(
    "dispatch",
    [
        _step("inline", "no_op", isolation="inline"),
        _step("sandboxed", "no_op"),
        *(_step(f"fresh-{number}", "no_op") for number in range(STEPS_A_RUN)),
        *(_step(f"reused-{number}", "no_op", reuse=100) for number in range(STEPS_A_RUN)),
        _step("weigh", "weigh"),
        _step(
            "spin",
            "spin",
            agent_timeout=HARD_LIMIT,
            cleanup_ttl=timedelta(seconds=0.2),
            max_retries=0,
        ),
    ],
)
PIPELINES: Final = Registry(
    "pipelines",
    [
        *(PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in STEPS),
        *(
            PipelineEntry(name=name, steps=tuple(f"{name}-{it}" for it in range(STEPS_A_RUN)))
            for name in ("fresh", "reused")
        ),
    ],
)


@contextmanager
def _engine(workers: int = 0) -> Iterator[InProcessEngine]:
    with TemporaryDirectory() as folder:
        environ = {
            "LEASEHOLD_STORE": f"sqlite:///{folder}/engine.db",
            "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
        }
        with InProcessEngine(
            STEPS, PIPELINES, environ=environ, workers=workers, report=lambda _: None
        ) as engine:
            yield engine


def overheads(rounds: int, steps: int) -> list[tuple[float, float]]:
    """Return what the sandbox adds to a step, and what a bare child takes: ms, by round."""
    children = BareChildren()
    with _engine() as engine:
        for _ in range(3):  # the module is imported, and each server is up
            _seconds(lambda: engine.run("sandboxed", {"n": 1}))
            _seconds(lambda: children.run({"n": 1}))
        found = []
        for _ in range(rounds):
            took: dict[str, list[float]] = {"inline": [], "sandboxed": [], "bare": []}
            for _ in range(steps):
                took["bare"].append(_seconds(lambda: children.run({"n": 1})))
                for name in ("sandboxed", "inline"):
                    took[name].append(_seconds(partial(engine.run, name, {"n": 1})))
            ms = {name: median(values) * 1000 for name, values in took.items()}
            found.append((ms["sandboxed"] - ms["inline"], ms["bare"]))
        return found


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def rates(rounds: int, steps: int) -> list[tuple[float, float]]:
    """Return the steps a second in processes that are used again, and in fresh ones, by round."""
    with _engine(workers=WORKERS) as engine:
        for name in ("fresh", "reused"):
            _rate(engine, name, 2 * WORKERS)
        return [
            (_rate(engine, "reused", 4 * steps), _rate(engine, "fresh", steps))
            for _ in range(rounds)
        ]


def _rate(engine: InProcessEngine, name: str, runs: int) -> float:
    began = time.perf_counter()
    for run in [engine.start(name, {"n": 1}) for _ in range(runs)]:
        engine.wait(run.run_id, 60)
    return runs * STEPS_A_RUN / (time.perf_counter() - began)


def kill_delays(count: int) -> list[float]:
    """Return the seconds from the hard limit of a handler that hears no one to its end."""
    with _engine(workers=1) as engine, TemporaryDirectory() as folder:
        engine.wait(engine.start("sandboxed", {}).run_id)
        return [_kill_delay(engine, Path(folder) / str(number)) for number in range(count)]


def _kill_delay(engine: InProcessEngine, note: Path) -> float:
    run = engine.start("spin", {"note": str(note)})
    until(lambda: note.exists() and note.read_text().endswith("\n"))
    pid, left = note.read_text().split()
    ended = os.pidfd_open(int(pid))
    select.select([ended], [], [])
    at = CLOCK.now().timestamp()
    os.close(ended)
    engine.wait(run.run_id, 60)
    return at - (note.stat().st_mtime + float(left))


def child_mebibytes(count: int) -> list[float]:
    """Return the memory of children: their own, and their share of what they have with others."""
    with _engine() as engine:
        runs = [engine.run("weigh", {}) for _ in range(count + 1)]
        outputs = [run.steps["weigh"].output for run in runs]
    return [int(output) / 1024 for output in outputs[1:] if output is not None]


def memory_of_a_worker(early: int, late: int) -> tuple[float, float]:
    """Return the MiB of a worker and of all its processes after so many steps; early and late."""
    words = [sys.executable, "-m", "bench.sandbox", "--grow", str(early), str(late)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603 - this program
    first, last = map(float, done.stdout.split())
    return first, last


def grow(early: int, late: int) -> None:
    """Print the memory of this process and of its children after so many steps, and so many."""
    with _engine(workers=2) as engine:
        for ran, goal in ((0, early), (early, late)):
            for _ in range(goal - ran):
                engine.wait(engine.start("sandboxed", {"n": 1}).run_id, 60)
            print(_mebibytes_of_session())


def _mebibytes_of_session() -> float:
    """Return the memory of this process and of what descends from it."""
    running = running_processes()
    family, more = set[int](), {os.getpid()}
    while more:
        family |= more
        more = {pid for pid, it in running.items() if it.parent in family} - family
    return sum(map(_pss, family)) / 1024


def _pss(pid: int) -> int:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return 0


def stop_delays(count: int) -> list[float]:
    """Return the seconds from a server's SIGTERM to the stop callback of a sandboxed handler."""
    found = []
    with bundle() as place:
        for _ in range(count):
            run_id = place.begin(deaf=True)
            at = place.strike(signal.SIGTERM, [run_id])
            found.append(_since(at, place.noted(run_id, 1, "called")))
            place.finish([run_id])
            threading.Event().wait(REST_S)  # the worker is replaced by then
    return found


def _since(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds()


def _within(name: str, unit: str, values: Sequence[float], limit: float) -> list[Figure]:
    """Return the median and the worst beside the limit."""
    parts = (("median", median(values)), ("worst", max(values)))
    return [
        figure(f"{name}, {part} of {len(values)}", unit, [(value, limit)], at_most=1.0)
        for part, value in parts
    ]


def measure(rounds: int, steps: int, samples: int, *, grown: tuple[int, int]) -> list[Figure]:
    """Return the figures.

    Args:
        rounds: of the overhead, with so many steps each.
        steps: see rounds.
        samples: kills and stops that are measured.
        grown: the steps after which a worker is weighed.
    """
    early, late = memory_of_a_worker(*grown)
    name = f"memory of a worker and its processes after {grown[1]} steps, and after {grown[0]}"
    kills = [seconds * 1000 for seconds in kill_delays(samples)]
    stops = [seconds * 1000 for seconds in stop_delays(samples)]
    return [
        figure("what a warm sandbox adds to a step", "ms", overheads(rounds, steps), at_most=1.3),
        figure("steps with reuse=100, and fresh", "/s", rates(rounds, steps), at_least=5.0),
        *_within("hard limit to the end of the process", "ms", kills, KILL_MS),
        *_within("SIGTERM to the stop callback", "ms", stops, STOP_MS),
        *_within("memory of a child that imports nothing", "MiB", child_mebibytes(8), CHILD_MIB),
        figure(name, "MiB", [(late, early)], at_most=1.1),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--grow", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.grow is not None:
        grow(*given.grow)
        return
    report("sandbox", measure(given.rounds, given.steps, given.samples, grown=(50, 1000)))


if __name__ == "__main__":
    main()
