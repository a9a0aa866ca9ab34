"""Durable no-op steps of `leasehold serve`, against the engine in a process without an API.

Both find the same runs in a store on SQLite, as after a restart, and bring them to their end with
as many workers. No one asks the API meanwhile: what it costs to be there, and to look after every
run of the store instead of one's own, is what is measured.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.durable_steps import PIPELINES, STEPS, STEPS_A_RUN
from bench.measuring import Figure, figure, report
from leasehold.in_process import InProcessEngine
from leasehold.server.server import ServeOptions, Server
from tests.worlds.ports import own_port

WORKERS: Final = 32


def steps_of_the_engine(environ: dict[str, str], runs: int) -> float:
    """Return the steps a second of an engine that takes up the runs of the store."""
    with InProcessEngine(environ=environ, workers=WORKERS) as engine:
        return _steps_a_second(engine, runs, engine.adopt_all)


def steps_of_the_server(environ: dict[str, str], runs: int) -> float:
    """Return the steps a second of a server that is started on the store."""
    server = Server(ServeOptions(port=own_port(), workers=WORKERS), lambda _: None, environ)
    try:
        return _steps_a_second(server.local, runs, server.start)
    finally:
        server.stop()


def _steps_a_second(engine: InProcessEngine, runs: int, begin: Callable[[], object]) -> float:
    done = threading.Semaphore(0)
    engine.on_idle(lambda _: done.release())
    began = time.perf_counter()
    begin()
    for _ in range(runs):
        done.acquire()
    return runs * STEPS_A_RUN / (time.perf_counter() - began)


def _with_runs(measure: Callable[[dict[str, str], int], float], runs: int) -> float:
    """Measure on its own store that holds so many runs."""
    with TemporaryDirectory() as name:
        environ = {
            "LEASEHOLD_STORE": f"sqlite:///{Path(name) / 'engine.db'}",
            "LEASEHOLD_ARTIFACTS": f"file://{Path(name) / 'artifacts'}",
            "LEASEHOLD_CATALOG": "bench.durable_steps",
        }
        with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=0) as engine:
            for number in range(runs):
                engine.start("no-op", {"number": number})
        return measure(environ, runs)


def measure(rounds: int, runs: int) -> list[Figure]:
    """Return the figure; each round measures both, one after the other, in turns."""
    both = steps_of_the_server, steps_of_the_engine
    paces = []
    for number in range(rounds):
        order = both if number % 2 else both[::-1]  # no one always comes first
        found = {which: _with_runs(which, runs) for which in order}
        paces.append((found[both[0]], found[both[1]]))
    name = f"durable steps of serve, {WORKERS} workers, API not called"
    return [figure(name, "steps/s", paces, at_least=0.9)]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=1000)
    given = parser.parse_args()
    report("serve", measure(given.rounds, given.runs))


if __name__ == "__main__":
    main()
