"""What it costs to hold a lease: document writes and reads between acquire and settlement.

A run holds its lease for so many heartbeats, and its handler tells of its progress all the time.
A heartbeat may cost one write, which takes the progress along, and no read: the worker knows the
document from its last write.

Heartbeats come faster here than in production; what one costs does not depend on that.
LEASEHOLD_LONG=1 holds the leases for ten minutes at the settings of production; the handler is
silent then, because progress that changes is stored between such heartbeats, every 2 s.
"""

from __future__ import annotations

import argparse
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.firestore_steps import DATABASE, Meter, OwnTasks
from bench.lease_meter import METERS, LeaseMeter, MeteredSqlite
from bench.measuring import Figure, figure, report
from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.attempt.attempt import PROGRESS_EVERY_S
from leasehold.bootstrap import boot
from leasehold.domain.manifest import run_ref
from leasehold.ports.documents import Documents
from leasehold.registry.pipelines import Catalog
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.emulators import MissingEmulatorError, firestore_host

HEARTBEATS: Final = 60
PRODUCTION_S: Final = 10.0
FAST_S: Final = 0.2
TELLS_A_BEAT: Final = 10


def hold(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Hold the lease for a time and count what that costs: neither acquire nor settlement."""
    held = METERS[given["store"]]
    held.taken()
    seconds = given["heartbeats"] * given["interval"]
    end = time.monotonic() + seconds
    is_told = (
        given["interval"] <= PROGRESS_EVERY_S
    )  # else it would be stored between the heartbeats
    while (left := end - time.monotonic()) > 0:
        if is_told:
            ctx.progress(1 - left / seconds, f"{left:.2f} s to go")
        ctx.wait_or_shutdown(min(left, given["interval"] / TELLS_A_BEAT))
    held.counts = held.taken()
    return {}


CATALOG: Final = Catalog(
    steps=Registry(
        "dispatch",
        [
            StepDispatchEntry(
                step_type="hold",
                handler="bench.lease_cost:hold",
                agent_timeout=timedelta(minutes=20),
                dispatch_deadline=timedelta(minutes=30),
                isolation="inline",
            )
        ],
    ),
    pipelines=Registry("pipelines", [PipelineEntry(name="hold", steps=("hold",))]),
)


def held_on_sqlite(folder: str, heartbeats: int, interval: float) -> Mapping[str, int]:
    """Return what the lease cost on SQLite."""
    documents = MeteredSqlite(Path(folder) / "leasehold.db")
    METERS["sqlite"] = LeaseMeter(documents.taken)
    return _held("sqlite", documents, folder, heartbeats, interval)


def held_on_firestore(folder: str, heartbeats: int, interval: float) -> Mapping[str, int]:
    """Return what the lease cost on Firestore, or raise MissingEmulatorError."""
    meter = Meter(firestore_host())
    project = f"bench-{secrets.token_hex(4)}"
    documents = FirestoreDocuments(project, DATABASE, SystemClock(), connect=meter.connect)
    METERS["firestore"] = LeaseMeter(meter.taken)
    return _held("firestore", documents, folder, heartbeats, interval)


def _held(
    store: str, documents: Documents, folder: str, heartbeats: int, interval: float
) -> Mapping[str, int]:
    environ = {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"}
    if interval != PRODUCTION_S:
        environ |= {"PIPELINE_HEARTBEAT_S": str(interval)}  # its lease outlasts a busy machine
    tasks = OwnTasks()
    bundle = boot(environ, catalog=CATALOG, documents=documents, tasks=tasks)
    given = {"store": store, "heartbeats": heartbeats, "interval": interval}
    run = start_run(bundle.engine, StartRequest("hold", given)).manifest
    task = tasks.waiting.pop()
    execute_step(bundle.engine, Hint(task.run_id, task.generation))
    ended = documents.get(run_ref(run.run_id))
    bundle.close()
    assert ended is not None
    assert ended.document["status"] == "COMPLETED", ended.document
    return METERS[store].counts


def measure(heartbeats: int, interval: float) -> list[Figure]:
    """Return the figures of the stores that are there; they hold their leases at the same time."""
    counts: dict[str, Mapping[str, int]] = {}

    def hold_on(store: str, held: Callable[[str, int, float], Mapping[str, int]]) -> None:
        with TemporaryDirectory() as folder:
            try:
                counts[store] = held(folder, heartbeats, interval)
            except MissingEmulatorError as missing:
                print(f"without Firestore: {missing}")

    stores = {"SQLite": held_on_sqlite, "Firestore": held_on_firestore}
    threads = [threading.Thread(target=hold_on, args=store) for store in stores.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [
        row
        for store in stores
        if store in counts
        for row in _rows(store, counts[store], heartbeats)
    ]


def _rows(store: str, counts: Mapping[str, int], heartbeats: int) -> list[Figure]:
    """Return writes and reads of a heartbeat; a limit of 0 has no ratio."""
    reads = counts.get("reads", 0)
    writes = [(counts.get("writes", 0), heartbeats)]
    return [
        figure(f"writes of {heartbeats} heartbeats on {store}", "writes", writes, at_most=1.0),
        Figure(
            name=f"reads of {heartbeats} heartbeats on {store}",
            value=reads,
            unit="reads",
            floor=0,
            ratio=reads,
            target="<= 0",
            holds=reads == 0,
        ),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heartbeats", type=int, default=HEARTBEATS)
    given = parser.parse_args()
    if os.environ.get("LEASEHOLD_LONG") == "1":
        report("lease_cost_long", measure(given.heartbeats, PRODUCTION_S))
    else:
        report("lease_cost", measure(given.heartbeats, FAST_S))


if __name__ == "__main__":
    main()
