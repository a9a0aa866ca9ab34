"""Processes that want the same step at once."""

from __future__ import annotations

import multiprocessing
import threading
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import grpc

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.bootstrap import Purpose, boot
from leasehold.domain import lifecycle
from leasehold.domain.change import on_manifest, on_run
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Ref
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, arrive
from tests.unit.adapters.firestore.wire import Fault, Place, Wire
from tests.worlds.builders import new_run, rules_of, step_settings
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.stores import one_more

RULES = rules_of(step_settings())


def open_store(place: Place) -> FirestoreDocuments:
    """Open the store of a place in this process."""
    connect = Wire(place.host).connect
    return FirestoreDocuments(place.project, "(default)", SystemClock(), connect=connect)


def start(documents: FirestoreDocuments, run_id: str) -> None:
    """Start a run of one step, which waits for a worker."""
    new = new_run(run_id, plan=("draft",))
    started = partial(lifecycle.start, rules=RULES, new=new)
    documents.transact(run_ref(run_id), on_manifest(run_id, started))


def acquire(place: Place, run_id: str, holder: str, all_ready: Barrier, parent: Connection) -> None:
    """Ask for the lease at the same moment as the others, and send what came of it."""
    documents = open_store(place)
    documents.get(run_ref(run_id))  # connected before the race begins
    ask = partial(lifecycle.arrive, rules=RULES, generation=1, lease_id=holder, holder=holder)
    all_ready.wait()
    change = documents.transact(run_ref(run_id), on_run(run_id, ask), in_transaction=True).answer
    parent.send(change.outcome.value)
    parent.close()
    documents.close()


def hang_before_the_commit(place: Place, run_id: str, parent: Connection) -> None:
    """Ask for the lease as a worker does, and say when all is done but the commit."""

    def hang() -> None:
        parent.send("now")
        threading.Event().wait()

    wire = Wire(place.host)
    wire.faults.append(Fault("Commit", grpc.StatusCode.UNAVAILABLE, meanwhile=hang))
    documents = FirestoreDocuments(place.project, "(default)", SystemClock(), connect=wire.connect)
    arrive(engine_on(documents, "killed"), Hint(run_id, 1))


def engine_on(documents: FirestoreDocuments, holder: str) -> Engine:
    """Return an engine whose worker has this name."""
    catalog = Catalog(steps=STEPS, pipelines=PIPELINES)
    bundle = boot(
        {},
        catalog=catalog,
        documents=documents,
        tasks=InProcessTasks(SystemClock()),
        purpose=Purpose.CHANGE,  # it runs nothing, and its folder is nobody's
    )
    process = replace(bundle.engine.process, holder=holder)
    return replace(bundle.engine, rules=RULES, process=process)


def fork_and_count(place: Place, ref: Ref) -> None:
    """Make a store, as a server does before it forks; let three workers count with it."""
    documents = open_store(place)
    forked = multiprocessing.get_context("fork")
    workers = [forked.Process(target=documents.transact, args=(ref, one_more)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    documents.transact(ref, one_more)
    documents.close()
