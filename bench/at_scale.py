"""What a sweep and a list read where there are very many runs, and a batch that is killed.

A sweep finds the runs that are due among all that are active, and a list gives a page of them:
neither may read more because there are more. The floor beside a count is its limit, so a ratio up
to 1 holds; beside a time or the steps of SQLite's virtual machine it is what the same took on a
store of 1,000 active runs.

The batch runs in its own process, which is killed with SIGKILL again and again; in the end
each dead run has been recreated, and none twice.

Before a deploy all live runs are compared with the new catalog (`leasehold check --live-runs`):
each is read once, and beside the time stands what reading them takes.

The emulator of Firestore takes three GB and two minutes for it; `--active` makes it fewer.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from bench.dead_workers import WAITING, allowance, behind_those_that_wait, beside_a_locked_run
from bench.firestore_steps import OwnTasks
from bench.many_runs import COMMON, RARE, Place, Size, firestore_place, sqlite_place
from bench.measuring import Figure, figure, report
from leasehold.bootstrap import Hooks, boot
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.services.batch import batch
from leasehold.services.catalog_fit import LIVE, LiveRunCheck, live_runs
from leasehold.services.operate import OperationRequest
from leasehold.services.read_runs import RunFilter, list_runs
from leasehold.services.request_bounds import MAX_PAGE_ITEMS
from leasehold.services.sweep import sweep
from tests.worlds.emulators import MissingEmulatorError, firestore_host

PAGE: Final = 50
PAGE_READS: Final = 60
BACKLOG: Final = 5000
KILLS: Final = (1, 150, 37, 211, 99)  # after so many runs, one after the other
SMALL: Final = 1000  # active runs of the small store
CHECKED: Final = 10_000  # live runs that are compared with a catalog
CHECK_S: Final = 10.0

FILTERS: Final[Mapping[str, RunFilter]] = {
    "no filter": RunFilter(),
    "status": RunFilter(status="IN_PROGRESS"),
    "pipeline": RunFilter(pipeline="no-op"),
    "deadLettered": RunFilter(dead_lettered=True),
    "a common label": RunFilter(label=COMMON),
    "a rare label": RunFilter(label=RARE),
    "status and label": RunFilter(status="IN_PROGRESS", label=COMMON),
    "all four": RunFilter(status="ERROR", pipeline="no-op", dead_lettered=True, label=RARE),
}
DEAD: Final = RunFilter(pipeline="no-op", dead_lettered=True)


def reads_of_a_sweep(place: Place, due: int) -> tuple[int, float]:
    """Sweep once; return how many documents were read, and the milliseconds."""
    place.engine.overrides.read()  # else whether this sweep looks is a matter of time
    before, began = place.counting.reads, time.perf_counter()
    swept = sweep(place.engine)
    took = (time.perf_counter() - began) * 1000
    assert swept.recovered + swept.redispatched == due, swept
    return place.counting.reads - before, took


def cost_of_a_page(place: Place, wanted: RunFilter) -> tuple[int, int]:
    """List a page; return how many documents were read, and the steps of SQLite's machine."""
    reads, steps = place.counting.reads, place.steps
    page = list_runs(place.engine, wanted, limit=PAGE)
    assert len(page.runs) == PAGE, wanted
    return place.counting.reads - reads, place.steps - steps


def check_of_live_runs(place: Place, live: int) -> list[Figure]:
    """Compare all live runs with the catalog; return what was read, and how long it took."""
    before, began = place.counting.reads, time.perf_counter()
    look = LiveRunCheck(place.engine)
    misfits = [one for run in live_runs(place.engine) for one in look.misfits(run)]
    took, reads = time.perf_counter() - began, place.counting.reads - before
    began = time.perf_counter()
    assert sum(1 for _ in live_runs(place.engine)) == live
    floor = time.perf_counter() - began
    assert misfits == []
    named = f"check of {live:,} live runs on SQLite"
    most = live + len(LIVE)  # a query that finds nothing costs one
    return [
        figure(f"reads: {named}", "reads", [(reads, most)], at_most=1.0),
        figure(f"time: {named}", "s", [(took, floor)], value_at_most=CHECK_S),
    ]


def recreate(kills: Sequence[int], place: Place, dead: int) -> tuple[int, int]:
    """Recreate the dead runs by a batch that is killed so often; return new runs, and kills.

    Args:
        kills: after how many runs each process is killed.
        place: the store.
        dead: how many dead runs it has.
    """
    ends = [_batch(place, kill_after) for kill_after in (*kills, None)]
    assert set(ends) <= {0, None}, ends
    asked = OperationRequest(Operation.RECREATE, "bench")
    assert batch(place.engine, asked, DEAD, limit=MAX_PAGE_ITEMS).matched == 0, "something was left"
    olds = {run.run_id: run for run in _all(place, DEAD)}
    news = [run for run in _all(place, RunFilter(label=RARE)) if not run.dead_lettered]
    assert len(olds) == dead
    assert all(len(run.recreated_as) == 1 for run in olds.values())
    assert {run.run_id for run in news} == {run.recreated_as[0] for run in olds.values()}
    return len(news), ends.count(None)


def _batch(place: Place, kill_after: int | None) -> int | None:
    """Run the batch in its own process; return its exit code, or None: it was killed."""
    words = [sys.executable, "-m", "bench.at_scale", "--batch"]
    environ = os.environ | place.environ
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603 - this program
        assert child.stdout is not None
        if kill_after is not None and all(child.stdout.readline() for _ in range(kill_after)):
            child.kill()
            return None
        child.communicate()
    return child.returncode


def _all(place: Place, wanted: RunFilter) -> list[Manifest]:
    found: list[Manifest] = []
    token: str | None = None
    while True:
        page = list_runs(place.engine, wanted, limit=500, page_token=token)
        found += page.runs
        token = page.next_page_token
        if token is None:
            return found


def serve_a_batch() -> int:
    """Recreate the dead runs of the store of the environment, a line each; return the exit code."""
    engine = boot(
        tasks=OwnTasks(), hooks=Hooks(observe=lambda _: print("recreated", flush=True))
    ).engine
    batch(engine, OperationRequest(Operation.RECREATE, "bench"), DEAD, limit=MAX_PAGE_ITEMS)
    return 0


def on_sqlite(
    size: Size,
    kills: Sequence[int],
    *,
    backlog: int = BACKLOG,
    waiting: int = WAITING,
    checked: int = CHECKED,
) -> list[Figure]:
    """Return the figures of SQLite, beside those of a small store.

    Args:
        size: the store.
        kills: after how many runs each process of the batch is killed.
        backlog: how many runs are due where all are.
        waiting: how many runs wait before that of a dead worker.
        checked: how many live runs are compared with the catalog.
    """
    small = Size(SMALL, size.due, max(PAGE, size.dead // 10))
    of = f"{size.active:,} on SQLite"
    figures = []
    with sqlite_place(small) as floor, sqlite_place(size) as place:
        for name, wanted in FILTERS.items():
            reads, steps = cost_of_a_page(place, wanted)
            _, floor_steps = cost_of_a_page(floor, wanted)
            named = f"page of {PAGE} in {of}, {name}"
            figures += [
                figure(f"reads: {named}", "reads", [(reads, PAGE_READS)], at_most=1.0),
                figure(f"looked at: {named}", "steps", [(steps, floor_steps)]),
            ]
        reads, took = reads_of_a_sweep(place, size.due)
        _, floor_took = reads_of_a_sweep(floor, size.due)
        named = f"sweep of {size.due} due in {of}"
        figures += [
            figure(
                f"reads: {named}",
                "reads",
                [(reads, size.due + allowance(took / 1000))],
                at_most=1.0,
            ),
            figure(f"time: {named}", "ms", [(took, floor_took)]),
        ]
        figures.append(_recreated(kills, place, size.dead, of))
    with sqlite_place(Size(backlog, backlog, 0)) as place:
        reads, took = reads_of_a_sweep(place, backlog)
        named = f"reads: sweep where all of {backlog:,} on SQLite are due"
        limit = backlog + allowance(took / 1000)
        figures.append(figure(named, "reads", [(reads, limit)], at_most=1.0))
    with sqlite_place(Size(checked, 0, 0)) as place:
        figures += check_of_live_runs(place, checked)
    with sqlite_place(Size(0, 0, 0)) as place:
        figures += behind_those_that_wait(place, "SQLite", waiting)
    return figures


def on_firestore(
    host: str, size: Size, kills: Sequence[int], *, waiting: int = WAITING
) -> list[Figure]:
    """Return the figures of the emulator."""
    of = f"{size.active:,} on Firestore"
    figures = []
    with firestore_place(host, f"bench-{secrets.token_hex(4)}", size) as place:
        for name, wanted in FILTERS.items():
            reads, _ = cost_of_a_page(place, wanted)
            named = f"reads: page of {PAGE} in {of}, {name}"
            figures.append(figure(named, "reads", [(reads, PAGE_READS)], at_most=1.0))
        reads, took = reads_of_a_sweep(place, size.due)
        named = f"reads: sweep of {size.due} due in {of}"
        limit = size.due + allowance(took / 1000)
        figures.append(figure(named, "reads", [(reads, limit)], at_most=1.0))
        figures.append(_recreated(kills, place, size.dead, of))
    with firestore_place(host, f"bench-{secrets.token_hex(4)}", Size(0, 0, 0)) as place:
        figures += behind_those_that_wait(place, "Firestore", waiting)
        figures.append(beside_a_locked_run(place))
    return figures


def _recreated(kills: Sequence[int], place: Place, dead: int, of: str) -> Figure:
    new, killed = recreate(kills, place, dead)
    named = f"recreated once of {dead:,} dead in {of}, batch killed {killed} times"
    return figure(named, "runs", [(new, dead)], at_least=1.0, at_most=1.0)


def main() -> int:
    """Measure and report; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--active", type=int, default=100_000)
    parser.add_argument("--dead", type=int, default=1000)
    parser.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.batch:
        return serve_a_batch()
    size = Size(given.active, min(100, given.active), given.dead)
    figures = on_sqlite(size, KILLS)
    try:
        figures += on_firestore(firestore_host(), size, KILLS)
    except MissingEmulatorError as missing:
        print(f"NO FIRESTORE EMULATOR, so that half is left out: {missing}")
    report("at_scale", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
