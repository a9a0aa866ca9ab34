"""Workers are killed while they hold slots: never one more at once, and no slot that leaks."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from leasehold.domain.lowered_limit import LoweredLimit, lowered_ref
from leasehold.services.read_runs import get_run
from leasehold.services.sweep import sweep
from tests.chaos.kills.slot_worker import WORK_S, die_before_the_call, engine_of, settings, work
from tests.chaos.patterns.spans import Span, at_work, longest_idle, most_at_once
from tests.chaos.storm.processes import forked, forked_with_pipe

#: A slot of a worker that was killed is taken up by the next look of another one, and its run
#: begins anew; machines that run other tests are slow.
IDLE_S = 12.0
#: Who had looked at a limit before it was lowered has begun by then.
A_MOMENT_S = 2.0


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


def survive(
    folder: Path, storm: Storm, pipeline: str, given: Sequence[Mapping[str, object]]
) -> tuple[list[Span], int]:
    """Have each input run, while workers are killed; return all attempts, and how many were."""
    chance = random.Random(storm.runs)  # noqa: S311 - no secret
    killed: dict[int, float] = {}
    with engine_of(folder, storm.limit, workers=0) as engine:
        runs = [engine.start(pipeline, one).run_id for one in given]
        left = [*runs]
        workers = [Worker(folder, storm) for _ in range(storm.processes)]
        over_at = time.monotonic() + 30 + storm.runs / 2
        try:
            while left and time.monotonic() < over_at:
                time.sleep(chance.uniform(0.1, 0.5))
                worker = workers.pop(chance.randrange(len(workers)))
                killed[worker.pid] = time.monotonic()  # others take its slots once it is gone
                worker.kill()
                workers.append(Worker(folder, storm))
                while left and get_run(engine.engine, left[-1]).is_terminal:
                    left.pop()
        finally:
            for worker in workers:
                worker.kill()
        assert {get_run(engine.engine, run_id).state for run_id in runs} == {"COMPLETED"}
    return spans_of(folder, killed), len(killed)


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
    given = [{"model": "gpt"}] * storm.runs

    spans, kills = survive(tmp_path, storm, "call", given)

    idle_s = longest_idle(spans, storm.limit - 1)
    print(f"{kills} kills, {len(spans)} attempts; below {storm.limit - 1} for {idle_s:.1f} s")  # noqa: T201 - of the nightly
    assert len(spans) >= storm.runs
    assert kills >= storm.kills
    assert most_at_once(spans) == storm.limit
    assert idle_s < IDLE_S


def test_a_slot_whose_worker_is_killed_before_it_calls_is_taken_after_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is over, its slot free, and no run knows: who waits looks a minute later at first."""
    for name, value in {**settings(tmp_path), WORK_S: "0"}.items():
        monkeypatch.setenv(name, value)
    with engine_of(tmp_path, 1, 0, PIPELINE_DISPATCH_GRACE_S="2") as engine:
        sweep(engine.engine)  # it has looked: the next look is half of the grace later
        holder, waits = (engine.start("call", {"model": "gpt"}).run_id for _ in range(2))
        process = forked(die_before_the_call, tmp_path, holder, waits)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        assert get_run(engine.engine, holder).state == "COMPLETED"
        assert get_run(engine.engine, waits).awaits_slot

        freed = time.monotonic()
        while get_run(engine.engine, waits).awaits_slot and time.monotonic() - freed < IDLE_S:
            time.sleep(0.1)
            sweep(engine.engine)

        assert not get_run(engine.engine, waits).awaits_slot
        engine.run_until_idle()
        assert get_run(engine.engine, waits).state == "COMPLETED"


@pytest.mark.nightly
def test_a_limit_that_its_provider_lowers_is_kept_while_workers_are_killed(tmp_path: Path) -> None:
    """Half of it are at work, from the refusal until it grows again; and no slot of them leaks."""
    storm = Storm(runs=400, limit=8, processes=4, work_s=0.3, kills=10)
    given = [{"model": "gpt", "refused": number in (60, 61, 62)} for number in range(storm.runs)]

    spans, kills = survive(tmp_path, storm, "adapt", given)

    with engine_of(tmp_path, storm.limit, workers=0) as engine:
        found = engine.engine.documents.get(lowered_ref("adapt:gpt"))
        passed = engine.engine.clock.now().timestamp() - time.monotonic()
    assert found is not None
    lowered = LoweredLimit.model_validate(found.document)
    until = lowered.grows_from.timestamp() - passed
    since = lowered.lowered_at.timestamp() - passed + A_MOMENT_S
    half = [one for one in spans if since < one.ended and one.begun < until]
    begun = {one.begun for one in half if one.begun > since}
    most = max(count for at, count in at_work(half) if at in begun)
    idle_s = longest_idle(half, 3)
    print(f"{kills} kills, {len(half)} attempts under half; below 3 for {idle_s:.1f} s")  # noqa: T201 - likewise
    assert lowered.share == 0.5
    assert most_at_once(spans) == storm.limit
    assert most == storm.limit // 2
    assert idle_s < IDLE_S
    assert kills >= storm.kills
