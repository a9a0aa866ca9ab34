"""Steps on Firestore: what each costs in reads, writes and RPCs, and how fast they are.

On the emulator. The floor is the official client with two transactions a step, one to take it and
one to settle it, as its documentation writes them: six RPCs. A step of the engine is one
transaction and one commit with a precondition: four. Both read and write a manifest; runs and
threads have their own documents. The look for overrides is no step's: it is counted apart, and
is one query in ten seconds of a process, here of a thread, however many steps it takes.
"""

from __future__ import annotations

import argparse
import itertools
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, Final

import grpc
from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore
from google.cloud.firestore_v1.services.firestore import FirestoreClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

from bench.durable_steps import STEPS_A_RUN
from bench.measuring import Figure, figure, report
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.bootstrap import boot, load_catalog
from leasehold.domain.effect import Task
from leasehold.domain.manifest import run_ref
from leasehold.registry.channels import LogChannel
from leasehold.registry.registry import Registry
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.start_run import StartRequest, start_run
from leasehold.worker.known_overrides import MAX_OVERRIDES_AGE_S
from tests.worlds.emulators import firestore_host

THREADS: Final = (1, 8, 16)
DATABASE: Final = "(default)"


class Meter(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc] # grpc has no types
    """Counts what a client asks of the store: RPCs, and the documents it is billed for."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()

    def connect(self, _: str, __: str) -> Any:
        """Make a client that is counted."""
        channel = grpc.intercept_channel(grpc.insecure_channel(self._host), self)
        return FirestoreClient(transport=FirestoreGrpcTransport(channel=channel))

    def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        """Count a call, and the documents that it writes."""
        self._count(rpcs=1, writes=len(getattr(request, "writes", ())))
        return go_on(details, request)

    def intercept_unary_stream(self, go_on: Any, details: Any, request: Any) -> Any:
        """Count a call, and the documents that it reads; a query is a look for overrides."""
        if details.method.endswith("/RunQuery"):
            self._count(looks=1)
        else:
            self._count(rpcs=1, reads=len(getattr(request, "documents", ())))
        return go_on(details, request)

    def taken(self) -> Counter[str]:
        """Return the counts so far, and begin again."""
        with self._counting:
            counts, self._counts = self._counts, Counter()
        return counts

    def _count(self, **more: int) -> None:
        with self._counting:
            self._counts.update(more)


class OwnTasks:
    """A task queue for one thread, which runs what its own steps owe."""

    def __init__(self) -> None:
        self.waiting: list[Task] = []

    def create(self, task: Task) -> None:
        """Take the task."""
        self.waiting.append(task)

    def exists(self, task: Task) -> bool:
        """Return whether the task waits."""
        return task in self.waiting


#: What the end of a run adds to its last step: its ledger, in the same commit.
END: Final = {"writes": 1}


def steps_of_the_engine(
    meter: Meter, project: str, threads: int, runs: int
) -> tuple[float, Mapping[str, float], Mapping[str, Any]]:
    """Return steps a second, what one costs, and a manifest; the start of runs is left out."""
    with TemporaryDirectory() as folder, ExitStack() as opened:
        documents = FirestoreDocuments(project, DATABASE, SystemClock(), connect=meter.connect)
        ready = [opened.enter_context(_engine(folder, documents)) for _ in range(threads)]
        for (engine, _), number in itertools.product(ready, range(runs // threads)):
            run = start_run(engine, StartRequest("no-op", {"number": number})).manifest
        meter.taken()
        seconds = _in_threads([_working(engine, tasks) for engine, tasks in ready])
        counts = meter.taken()
        found = documents.get(run_ref(run.run_id))
    ended = runs // threads * threads
    steps = ended * STEPS_A_RUN
    looks_due = threads * (1 + seconds / MAX_OVERRIDES_AGE_S)  # as many at most
    costs = {name: (count - END.get(name, 0) * ended) / steps for name, count in counts.items()}
    costs["looks"] = counts["looks"] / looks_due
    return steps / seconds, costs, found.document if found else {}


def steps_of_the_floor(
    host: str, project: str, threads: int, runs: int, document: Mapping[str, Any]
) -> float:
    """Return the steps a second of the official client, two transactions each."""
    channel = grpc.insecure_channel(host)
    client = firestore.Client(
        project=project,
        database=DATABASE,
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
    )
    client._firestore_api_internal = FirestoreClient(  # noqa: SLF001 - where the emulator is
        transport=FirestoreGrpcTransport(channel=channel)
    )
    steps = runs // threads * STEPS_A_RUN

    def working(number: int) -> Callable[[], None]:
        ref = client.collection("floor").document(f"{number}")
        ref.set({**document, "count": 0})

        def work() -> None:
            for _ in range(2 * steps):
                firestore.transactional(_count_up)(client.transaction(), ref)

        return work

    seconds = _in_threads([working(number) for number in range(threads)])
    channel.close()
    return threads * steps / seconds


def _count_up(transaction: Any, ref: Any) -> None:
    found = ref.get(transaction=transaction).to_dict()
    transaction.set(ref, {**found, "count": found["count"] + 1})


def writes_a_channel(meter: Meter, project: str, channels: int = 3) -> float:
    """Return how many writes the end of a run adds for each channel that is told of it."""
    writes = []
    with TemporaryDirectory() as folder:
        for count in (0, channels):
            documents = FirestoreDocuments(project, DATABASE, SystemClock(), connect=meter.connect)
            with _engine(folder, documents, count) as (engine, tasks):
                start_run(engine, StartRequest("no-op", {"number": count}))
                meter.taken()
                _working(engine, tasks)()
                writes.append(meter.taken()["writes"])
    without, with_ = writes
    return (with_ - without) / channels


@contextmanager
def _engine(
    folder: str, documents: FirestoreDocuments, channels: int = 0
) -> Iterator[tuple[Engine, OwnTasks]]:
    """Lend an engine that announces nothing, so that what is counted are the writes of its runs."""
    tasks = OwnTasks()
    environ = {"LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts"}
    told = [LogChannel(name=f"channel-{number}") for number in range(channels)]
    catalog = replace(load_catalog("bench.durable_steps"), channels=Registry("channels", told))
    bundle = boot(
        environ, catalog=catalog, documents=documents, tasks=tasks, announces_by_hand=True
    )
    try:
        yield bundle.engine, tasks
    finally:
        bundle.close()


def _working(engine: Engine, tasks: OwnTasks) -> Callable[[], None]:
    def work() -> None:
        while tasks.waiting:
            task = tasks.waiting.pop()
            execute_step(engine, Hint(task.run_id, task.generation))

    return work


def _in_threads(works: list[Callable[[], None]]) -> float:
    threads = [threading.Thread(target=work) for work in works]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def measure(rounds: int, runs: int, at_once: Sequence[int] = THREADS) -> list[Figure]:
    """Return the figures; each round measures engine and floor one after the other.

    What a step costs is counted with the last of the numbers of threads.
    """
    host = firestore_host()
    meter = Meter(host)
    figures: list[Figure] = []
    costs: Mapping[str, float] = {}
    for threads in at_once:
        measured = []
        for _ in range(rounds):
            project = f"bench-{secrets.token_hex(4)}"
            ours, costs, document = steps_of_the_engine(meter, project, threads, runs)
            floor = steps_of_the_floor(host, project, threads, runs, document)
            measured.append((ours, floor))
        name = f"steps on Firestore, {threads} threads"
        figures.append(figure(name, "steps/s", measured, at_least=1.1))
    for name, floor in (("reads", 1), ("writes", 2), ("rpcs", 4)):
        row = [(costs[name], floor)]
        figures.append(figure(f"{name} a step on Firestore", name, row, at_most=1.0))
    row = [(writes_a_channel(meter, f"bench-{secrets.token_hex(4)}"), 1)]
    name = "writes a channel at the end of a run on Firestore"
    figures.append(figure(name, "writes", row, at_most=1.0))
    row = [(costs["looks"], 1)]
    name = "looks for overrides in 10 s of a process"
    figures.append(figure(name, "queries", row, at_most=1.0))
    return figures


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=96)
    given = parser.parse_args()
    report("firestore_steps", measure(given.rounds, given.runs))


if __name__ == "__main__":
    main()
