"""Durable steps through `leasehold dev`, as a share of requests to a function that does nothing.

The floor is a no-op function under the same server, with as many processes and threads, called by
as many clients as there are runs at once. A durable step is one such request, and beside it a task
that is created and delivered over HTTP and two durable transactions.

Where the time goes is told twice. From the timelines: from hand-off to start is the queue's part,
from start to completion the engine's. And from the processes: the CPU time of each server for a
step, as a share of what the cores had to give in that time.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import urllib3

from bench.durable_steps import STEPS_A_RUN
from bench.measuring import Figure, figure, report
from leasehold.devserver.cloud_tasks import CloudTasksDouble, QueueSettings, RateLimits
from leasehold.devserver.function_processes import (
    START_TIMEOUT_S,
    Function,
    FunctionProcesses,
)
from leasehold.devserver.server import DevOptions, DevServer
from tests.worlds.ports import own_port

AT_ONCE: Final = 16
WORKERS: Final = 2


@dataclass(frozen=True, slots=True)
class Through:
    """What was measured through the bundle: steps a second, and a step's milliseconds."""

    steps_a_second: float
    queue: float
    engine: float
    cpu: Mapping[str, float]


def steps_through_the_bundle(runs: int) -> Through:
    """Run so many runs through the bundle."""
    with _bundle() as url:
        _run_all(url, AT_ONCE)  # the servers are warm then
        before = cpu_seconds()
        began = time.perf_counter()
        ids = _run_all(url, runs)
        seconds = time.perf_counter() - began
        after = cpu_seconds()
        stories = [_call(f"{url}/runs/{run_id}")["steps"] for run_id in ids]
    queue, engine = [], []
    for steps in stories:
        records = list(steps.values())
        engine += [_ms(record["startedAt"], record["completedAt"]) for record in records]
        queue += [
            _ms(before["handedOffAt"], after["startedAt"]) for before, after in pairwise(records)
        ]
    steps = runs * STEPS_A_RUN
    cpu = {name: (after[name] - before[name]) * 1000 / steps for name in after}
    return Through(steps / seconds, median(queue), median(engine), cpu)


def cpu_seconds() -> dict[str, float]:
    """Return the CPU time so far of each function's processes, and of this one."""
    spent = {"queue and clients": time.process_time()}
    for pid in _children(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "--target" in words:
            name = words[words.index("--target") + 1]
            spent[name] = sum(_cpu_of(one) for one in (pid, *_children(pid)))
    return spent


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # a thread that ended meanwhile
            found += (task / "children").read_text().split()
    return [int(child) for child in found]


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def requests_of_the_floor(requests: int) -> float:
    """Return how many requests a second the no-op function answers to as many clients."""
    function = Function("no_op", own_port(), workers=WORKERS)
    processes = FunctionProcesses(
        function, Path(__file__).parent / "functions", dict(os.environ), print
    )
    processes.start()
    try:
        processes.wait_until_ready(time.monotonic() + START_TIMEOUT_S)
        pool = urllib3.PoolManager(maxsize=AT_ONCE, block=True)

        def ask() -> None:
            for _ in range(requests // AT_ONCE):
                pool.request("POST", function.url, body=b"{}")

        _in_threads(ask)
        began = time.perf_counter()
        _in_threads(ask)
        return requests / (time.perf_counter() - began)
    finally:
        processes.request_stop()
        processes.wait_or_kill(time.monotonic() + START_TIMEOUT_S, at_once=lambda: False)


def _run_all(url: str, runs: int) -> list[str]:
    """Run so many no-op runs, a few at once; return their ids."""
    ids: list[str] = []
    numbers = iter(range(runs))
    taking = threading.Lock()

    def work() -> None:
        while True:
            with taking:
                number = next(numbers, None)
            if number is None:
                return
            body = {"pipeline": "no-op", "input": {"number": number}}
            run_id = _call(f"{url}/runs", body)["runId"]
            while _call(f"{url}/runs/{run_id}")["status"] != "COMPLETED":
                time.sleep(0.02)
            ids.append(run_id)

    _in_threads(work)
    return ids


@contextmanager
def _bundle() -> Iterator[str]:
    with TemporaryDirectory() as name:
        environ = os.environ | {"LEASEHOLD_CATALOG": "bench.durable_steps"}
        options = DevOptions(port=own_port(), workers=WORKERS, data=Path(name), environ=environ)
        fast = QueueSettings(rate=RateLimits(max_dispatches_per_second=10_000))
        server = DevServer(options, print, tasks=CloudTasksDouble(fast))
        server.start()
        try:
            yield server.url
        finally:
            server.stop()


def _in_threads(work: Any) -> None:
    threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _call(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def _ms(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() * 1000


def measure(rounds: int, runs: int) -> list[Figure]:
    """Return the figures; each round measures bundle and floor one after the other."""
    steps, queue, engine = [], [], []
    cpu: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(rounds):
        ours = steps_through_the_bundle(runs)
        steps.append((ours.steps_a_second, requests_of_the_floor(runs * STEPS_A_RUN)))
        whole = 1000 * AT_ONCE / ours.steps_a_second
        queue.append((ours.queue, whole))
        engine.append((ours.engine, whole))
        given = 1000 * (os.cpu_count() or 1) / ours.steps_a_second
        for name, spent in ours.cpu.items():
            cpu[name].append((spent, given))
    return [
        figure("steps through the bundle, of no-op requests", "steps/s", steps),
        figure("queue: from hand-off to start, of a step", "ms", queue),
        figure("engine: from start to completion, of a step", "ms", engine),
        *(
            figure(f"CPU of {name}, of what the cores gave for a step", "ms", spent)
            for name, spent in sorted(cpu.items())
        ),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=160)
    given = parser.parse_args()
    report("bundle_steps", measure(given.rounds, given.runs))


if __name__ == "__main__":
    main()
