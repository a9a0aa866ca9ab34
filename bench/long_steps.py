"""What long steps cost: work repeated after a kill, the time and size of a large checkpoint.

And what the store is asked for: writes and reads of documents, files put and deleted, of a
checkpoint, of a call that is made once and of a continuation; counted exactly.

The floor of a large state is `gzip -6` alone, of the same JSON, turn by turn with the checkpoint.
The floor of the work repeated is one interval between two checkpoints.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from bench.firestore_steps import DATABASE, Meter, OwnTasks
from bench.lease_meter import MeteredSqlite
from bench.long_step_handlers import CATALOG, METERS, CountedArtifacts, LongMeter
from bench.measuring import Figure, figure, report
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.bootstrap import Around, boot
from leasehold.domain.manifest import Manifest
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.documents import Documents
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from tests.chaos.kills.long_step import ITERATIONS
from tests.chaos.kills.points import BEFORE_THE_WRITE, BETWEEN_ITERATIONS, Kill, Place
from tests.chaos.kills.workers import WorkerProcesses, opened
from tests.worlds.emulators import MissingEmulatorError, firestore_host

MEGABYTE: Final = 1_000_000


class Bench:
    """An engine whose store and files are metered."""

    def __init__(self, store: str, engine: Engine, tasks: OwnTasks) -> None:
        self.store = store
        self._engine = engine
        self._tasks = tasks

    @property
    def meter(self) -> LongMeter:
        """What was counted."""
        return METERS[self.store]

    def run(self, pipeline: str, **given: Any) -> Manifest:
        """Run a pipeline to its end."""
        request = StartRequest(pipeline, {"store": self.store, **given})
        run = start_run(self._engine, request).manifest
        while self._tasks.waiting:
            task = self._tasks.waiting.pop()
            execute_step(self._engine, Hint(task.run_id, task.generation))
        ended = get_run(self._engine, run.run_id)
        assert ended.status == "COMPLETED", ended
        return ended


@contextmanager
def bench_on(store: str) -> Iterator[Bench]:
    """Open an engine on SQLite or Firestore, or raise MissingEmulatorError."""
    with TemporaryDirectory() as folder:
        documents, taken = open_metered(store, Path(folder))
        files: Counter[str] = Counter()
        tasks = OwnTasks()
        bundle = boot(
            {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"},
            catalog=CATALOG,
            documents=documents,
            tasks=tasks,
            around=Around(artifacts=lambda it: cast(Artifacts, CountedArtifacts(it, files))),
        )
        METERS[store] = LongMeter(taken, files, partial(bundle.engine.artifacts.sizes, "runs"))
        try:
            yield Bench(store, bundle.engine, tasks)
        finally:
            bundle.close()


def open_metered(store: str, folder: Path) -> tuple[Documents, Callable[[], Counter[str]]]:
    """Return a store that is metered, and what returns its counts and begins again."""
    if store == "SQLite":
        documents = MeteredSqlite(folder / "leasehold.db")
        return documents, documents.taken
    meter = Meter(firestore_host())
    project = f"bench-{secrets.token_hex(4)}"
    return FirestoreDocuments(project, DATABASE, SystemClock(), connect=meter.connect), meter.taken


def saved_states(rounds: int, megabytes: float) -> list[Figure]:
    """Return the figures of a large state: time and size beside `gzip -6` alone."""
    rows = []
    size = int(megabytes * MEGABYTE)
    with bench_on("SQLite") as bench:
        for kind in ("texts", "numbers"):
            name = f"a state of {megabytes:g} MB, {kind}"
            output = bench.run("save", kind=kind, bytes=size, rounds=rounds).steps["save"].output
            rows += [
                figure(f"saving {name}", "s", json.loads(output or ""), at_most=1.3),
                figure(f"size of {name}", "bytes", [bench.meter.bytes], at_most=1.05),
            ]
        ran = bench.run("save-elsewhere", kind="texts", bytes=size, rounds=rounds)
        took = json.loads(ran.steps["save-elsewhere"].output or "")
        name = f"saving a state of {megabytes:g} MB, texts, from its own process"
        rows.append(figure(name, "s", took, at_most=1.3))
    return rows


def checkpoints(bench: Bench, count: int) -> list[Figure]:
    """Return what so many checkpoints of one step ask of the store, by one checkpoint."""
    rows = []
    for kind, files in (("small", 0), ("large", count)):
        bench.run("keep", kind=kind, checkpoints=count)
        counts = bench.meter.counts
        name = f"of {count} {kind} checkpoints on {bench.store}"
        rows += [
            figure(f"writes {name}", "writes", [(counts["writes"], count)], at_most=1.0),
            exactly(f"reads {name}", "reads", counts["reads"], 0),
            exactly(f"files put {name}", "files", counts["puts"], files),
        ]
    left = len(bench.meter.sizes())
    return [*rows, exactly(f"files left after all of them on {bench.store}", "files", left, 0)]


def calls_and_continuations(bench: Bench, count: int) -> list[Figure]:
    """Return what the record of a call that is made once costs, and one more attempt."""
    bench.run("call", calls=count)
    calls, name = bench.meter.counts, f"{count} calls made once on {bench.store}"
    rows = [
        figure(f"writes of {name}", "writes", [(calls["writes"], count)], at_most=1.0),
        exactly(f"reads of {name}", "reads", calls["reads"], 0),
    ]
    bench.run("relay", continuations=count)
    relay, name = bench.meter.counts, f"{count} continuations on {bench.store}"
    writes = relay["writes"] - count  # each attempt keeps a checkpoint first
    # two of the run, as any attempt has, and two events: it is continued, and it goes on
    return [
        *rows,
        figure(f"writes of {name}", "writes", [(writes, 4 * count)], at_most=1.0),
        figure(f"reads of {name}", "reads", [(relay["reads"], count)], at_most=1.0),
    ]


def exactly(name: str, unit: str, value: float, expected: float) -> Figure:
    """Return the row of a count that is known exactly; one of nothing has no ratio."""
    return Figure(
        name=name,
        value=value,
        unit=unit,
        floor=expected,
        ratio=value / expected if expected else value,
        target=f"value = {expected}",
        holds=value == expected,
    )


def work_repeated(kills: int, every: int) -> list[Figure]:
    """Return how many iterations a killed worker's step repeats at most, beside one interval."""
    repeated = []
    with TemporaryDirectory() as name:
        for number in range(kills):
            folder = Path(name) / str(number)
            folder.mkdir()
            place, processes = Place(folder), WorkerProcesses("sqlite", folder, "inline")
            place.order(None)
            with opened("sqlite", folder, "inline", workers=0) as idle:
                given = {"folder": str(folder), "bytes": 200, "every": every}
                run_id = idle.start("iterate", given).run_id
            point = (BEFORE_THE_WRITE, BETWEEN_ITERATIONS)[number % 2]
            processes.run(run_id, Kill(point, 2 + number % (ITERATIONS - 2)))
            processes.run(run_id, None)
            repeated.append(len(place.executed) - ITERATIONS)
    name = f"iterations repeated after SIGKILL, a checkpoint every {every}, worst of {kills}"
    return [figure(name, "iterations", [(max(repeated), every)], at_most=1.0)]


def measure(rounds: int, megabytes: float, count: int, kills: int) -> list[Figure]:
    """Return the figures of the stores that are there.

    Args:
        rounds: how often a large state is saved.
        megabytes: its size.
        count: checkpoints of one step.
        kills: of workers, each in its own run.
    """
    rows = [*work_repeated(kills, every=3), *saved_states(rounds, megabytes)]
    for store in ("SQLite", "Firestore"):
        try:
            with bench_on(store) as bench:
                rows += checkpoints(bench, count)
                rows += calls_and_continuations(bench, min(count, 50))
        except MissingEmulatorError as missing:
            print(f"without Firestore: {missing}")
    return rows


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--checkpoints", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=9)
    given = parser.parse_args()
    rows = measure(given.rounds, given.megabytes, given.checkpoints, given.kills)
    report("long_steps", rows)


if __name__ == "__main__":
    main()
