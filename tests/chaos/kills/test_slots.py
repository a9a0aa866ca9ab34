"""Workers are killed while they hold slots: never one more at once, and no slot that leaks."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from leasehold.services.read_runs import get_run
from tests.chaos.kills.slot_worker import engine_of, settings
from tests.chaos.patterns.spans import Span, longest_idle, most_at_once

#: A slot of a worker that was killed is taken up by the next look of another one, and its run
#: begins anew; machines that run other tests are slow.
IDLE_S = 12.0


class Storm(NamedTuple):
    """How many runs, slots and processes there are, and how often one is killed."""

    runs: int
    limit: int
    processes: int
    kills: int


def spawn(folder: Path, limit: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.chaos.kills.slot_worker", str(folder), str(limit)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    with worker.stdout as stdout:
        assert stdout.readline() == "ready\n"
    return worker


def spans_of(folder: Path, killed: dict[int, float]) -> list[Span]:
    """Return all attempts; those without an end were at work when their process was killed."""
    begun: dict[tuple[str, str], float] = {}
    spans = []
    for line in Path(settings(folder)["SLOT_LOG"]).read_text().splitlines():
        at, event, run_id, pid = line.split()
        if event == "begin":
            begun[run_id, pid] = float(at)
        else:
            spans.append(Span(begun.pop((run_id, pid)), float(at)))
    cut = [Span(at, killed[int(pid)]) for (_, pid), at in begun.items()]
    return spans + [one for one in cut if one.begun < one.ended]


@pytest.mark.parametrize(
    "storm",
    [
        Storm(runs=40, limit=3, processes=2, kills=2),
        pytest.param(Storm(1000, 8, 4, 25), marks=pytest.mark.nightly),
    ],
    ids=["short", "thousand"],
)
def test_never_more_than_the_limit_and_no_slot_leaks(tmp_path: Path, storm: Storm) -> None:
    chance = random.Random(storm.runs)  # noqa: S311 - no secret
    with engine_of(tmp_path, storm.limit, workers=0) as engine:
        runs = [engine.start("call", {"model": "gpt"}).run_id for _ in range(storm.runs)]
        workers = [spawn(tmp_path, storm.limit) for _ in range(storm.processes)]
        killed: dict[int, float] = {}
        try:
            for _ in range(storm.kills):
                time.sleep(chance.uniform(0.3, 1.2))
                worker = workers.pop(chance.randrange(len(workers)))
                killed[worker.pid] = time.monotonic()  # others take its slots as soon as it is gone
                worker.send_signal(signal.SIGKILL)
                worker.wait()
                workers.append(spawn(tmp_path, storm.limit))
            over_at = time.monotonic() + 30 + storm.runs / 2
            left = set(runs)
            while left and time.monotonic() < over_at:
                left = {one for one in left if not get_run(engine.engine, one).is_terminal}
                time.sleep(0.1)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()

        ended = [get_run(engine.engine, run_id) for run_id in runs]

    spans = spans_of(tmp_path, killed)
    assert {run.state for run in ended} == {"COMPLETED"}
    assert len(spans) >= storm.runs
    assert most_at_once(spans) == storm.limit
    assert longest_idle(spans, storm.limit - 1) < IDLE_S
