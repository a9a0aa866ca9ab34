"""The pages that people keep open, among very many runs: what each reads, and how long it takes.

Beside a count stands its limit, so a ratio up to 1 holds. A time is that of the row with its JSON,
or of a whole page, as a server answers it: the 95th percentile, and beside it that of the
processor's time, which other programs of the machine do not lengthen.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import flask
import pydantic_core

from bench.at_scale import PAGE, PAGE_READS
from bench.firestore_steps import OwnTasks
from bench.many_runs import CLOCK, Counting, Size, sqlite_place
from bench.measuring import Figure, figure, report
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.api import calls
from leasehold.api.call_row import AnyRow, CallRequest
from leasehold.api.runs import RunsQuery
from leasehold.bootstrap import boot
from leasehold.domain.trouble import Trouble
from leasehold.services.engine import Engine
from leasehold.services.read_runs import RunFilter, page_mark, run_mark
from leasehold.web.serve_api import ROUTES
from tests.worlds.runs_api import OpenEngine

ROUNDS: Final = 100
#: Runs that are due, and so overdue or silent.
DUE: Final = 200
PAGE_MS: Final = 50.0
POLL_MS: Final = 5.0
#: To count the runs by state and reason is so many reads.
COUNTS: Final = 20
#: The alarms of sixteen shards are read side by side, some of each.
SHARDED_READS: Final = 2 * PAGE_READS

PAGES: Final[Mapping[str, dict[str, Any]]] = {
    "no filter": {},
    "status": {"status": "IN_PROGRESS"},
    "dead-lettered": {"dead_lettered": True},
    "a reason": {"reason": "PERMANENT_FAILURE"},
    "an id's beginning": {"id_prefix": "r-000"},
    "silent": {"trouble": Trouble.SILENT},
    "overdue": {"trouble": Trouble.OVERDUE},
}


def measure(active: int, dead: int, rounds: int = ROUNDS) -> list[Figure]:
    """Return the figures of a store with so many runs on SQLite."""
    with sqlite_place(Size(active, min(DUE, active), dead)) as place:
        store = Counting(SqliteDocuments(_file_of(place.environ), CLOCK))
        engine = boot(place.environ, documents=store, tasks=OwnTasks()).engine
        of = f"in {active + dead:,} on SQLite"
        figures = _pages(engine, store, of, rounds)
        for name, call in _polls(engine).items():
            figures += _figures(f"{name} {of}", call, store, (PAGE + 1, POLL_MS), rounds)
        for row, reads in ((calls.counts, COUNTS), (calls.metrics, 300)):
            call = _answering(engine, row)
            figures += _figures(f"GET {row.path} {of}", call, store, (reads, PAGE_MS), rounds)
        most = (PAGE_READS + COUNTS, PAGE_MS)
        figures += _figures(f"page of / {of}", _page_of(engine, "/"), store, most, rounds)
        store.close()
    return figures


def _pages(engine: Engine, store: Counting, of: str, rounds: int) -> list[Figure]:
    figures = []
    for name, wanted in PAGES.items():
        call = _answering(engine, calls.overview, RunsQuery(**wanted, limit=PAGE))
        assert len(pydantic_core.from_json(call())["runs"]) == PAGE, name
        most = SHARDED_READS if "trouble" in wanted else PAGE_READS
        named = f"overview of {PAGE}, {name},"
        figures += _figures(f"{named} {of}", call, store, (most, PAGE_MS), rounds)
    return figures


def _polls(engine: Engine) -> dict[str, Callable[[], object]]:
    return {
        "mark of a run": lambda: run_mark(engine, "r-00000007"),
        "mark of a page": lambda: page_mark(engine, RunFilter(), PAGE),
        "mark of a page, status,": lambda: page_mark(engine, RunFilter(status="PENDING"), PAGE),
    }


def _figures(
    name: str, call: Callable[[], object], store: Counting, most: tuple[int, float], rounds: int
) -> list[Figure]:
    """Return what a call reads, and how long it takes, beside the most of both."""
    call()
    gc.collect()
    gc.freeze()  # as servers do once they have begun
    before = store.reads
    call()
    reads = store.reads - before
    walls, processor = [], []
    for _ in range(rounds):
        began, used = time.perf_counter(), time.process_time()
        call()
        walls.append((time.perf_counter() - began) * 1000)
        processor.append((time.process_time() - used) * 1000)
    p95 = [quantiles(took, n=20)[18] for took in (walls, processor)]
    return [
        figure(f"reads: {name}", "reads", [(reads, most[0])], at_most=1.0),
        figure(f"p95: {name}", "ms", [(p95[0], p95[1])], value_at_most=most[1]),
    ]


def _answering(engine: Engine, row: AnyRow, given: Any = None) -> Callable[[], bytes]:
    request = CallRequest(given)
    return lambda: pydantic_core.to_json(row.answer(engine, request), by_alias=True)


def _page_of(engine: Engine, path: str) -> Callable[[], object]:
    """Return a look at a page, as a browser gets it."""
    app, source = flask.Flask("lists"), OpenEngine(engine)
    headers = {"Accept": "text/html", "Accept-Encoding": "gzip", "Sec-Fetch-Site": "none"}

    def look() -> object:
        with app.test_request_context(path, headers=headers):
            return ROUTES.answer(source, flask.request)

    return look


def _file_of(environ: Mapping[str, str]) -> Path:
    return Path(environ["LEASEHOLD_STORE"].removeprefix("sqlite:///"))


def main() -> int:
    """Measure and report; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--active", type=int, default=98_000)
    parser.add_argument("--dead", type=int, default=2_000)
    given = parser.parse_args()
    report("lists", measure(given.active, given.dead))
    return 0


if __name__ == "__main__":
    sys.exit(main())
