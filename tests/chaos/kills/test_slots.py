"""Workers are killed while they hold slots: never one more at once, and no slot that leaks."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from leasehold.services.read_runs import get_run
from tests.chaos.kills.slot_worker import engine_of, settings, work
from tests.chaos.patterns.spans import Span, longest_idle, most_at_once
from tests.chaos.storm.processes import forked_with_pipe

#: A slot of a worker that was killed is taken up by the next look of another one, and its run
#: begins anew; machines that run other tests are slow.
IDLE_S = 12.0


class Storm(NamedTuple):
    """Runs, slots and processes; one process after the other is killed, to the end.

    Args:
        runs: how many there are.
        limit: how many may be at work at once.
        processes: how many work.
        work_s: how long an attempt takes.
        kills: how many there are at least.
    """

    runs: int
    limit: int
    processes: int
    work_s: float
    kills: int


class Worker:
    """A process that works, from the moment at which it is ready."""

    def __init__(self, folder: Path, storm: Storm) -> None:
        self._process, self._pipe = forked_with_pipe(work, folder, storm.limit, storm.work_s)
        assert self._pipe.poll(60)
        self._pipe.recv()
        self.pid: int = self._process.pid

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()


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
        Storm(runs=100, limit=3, processes=2, work_s=0.1, kills=2),
        pytest.param(
            Storm(runs=1000, limit=8, processes=4, work_s=0.5, kills=30), marks=pytest.mark.nightly
        ),
    ],
    ids=["short", "thousand"],
)
def test_never_more_than_the_limit_and_no_slot_leaks(tmp_path: Path, storm: Storm) -> None:
    chance = random.Random(storm.runs)  # noqa: S311 - no secret
    killed: dict[int, float] = {}
    with engine_of(tmp_path, storm.limit, workers=0) as engine:
        runs = [engine.start("call", {"model": "gpt"}).run_id for _ in range(storm.runs)]
        left = [*runs]
        workers = [Worker(tmp_path, storm) for _ in range(storm.processes)]
        over_at = time.monotonic() + 30 + storm.runs / 2
        try:
            while left and time.monotonic() < over_at:
                time.sleep(chance.uniform(0.1, 0.5))
                worker = workers.pop(chance.randrange(len(workers)))
                killed[worker.pid] = time.monotonic()  # others take its slots once it is gone
                worker.kill()
                workers.append(Worker(tmp_path, storm))
                while left and get_run(engine.engine, left[-1]).is_terminal:
                    left.pop()
        finally:
            for worker in workers:
                worker.kill()
        ended = [get_run(engine.engine, run_id) for run_id in runs]

    spans = spans_of(tmp_path, killed)
    idle_s = longest_idle(spans, storm.limit - 1)
    print(f"{len(killed)} kills, {len(spans)} attempts; below {storm.limit - 1} for {idle_s:.1f} s")  # noqa: T201 - of the nightly
    assert {run.state for run in ended} == {"COMPLETED"}
    assert len(spans) >= storm.runs
    assert len(killed) >= storm.kills
    assert most_at_once(spans) == storm.limit
    assert idle_s < IDLE_S
