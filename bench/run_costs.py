"""What a run asks of each service, counted at the clients: what `docs/costs.md` multiplies.

Firestore's emulator, counted at its gRPC client; Cloud Storage's emulator, at its HTTP client;
tasks and messages at the ports, a call each to create or publish and one to deliver. What is
counted is exact, and the same each time.
"""

from __future__ import annotations

import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import grpc
from google.cloud.firestore_v1.services.firestore import FirestoreClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

from bench.announcements import Taken
from bench.costed_steps import PASS, SILENT, TOLD, MovedClock
from bench.firestore_steps import DATABASE, OwnTasks
from bench.measuring import Figure, figure, report
from docs.costs import COUNTED, IDLE_SWEEP, Kind
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.cloud_storage import CloudStorageArtifacts
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.bootstrap import Around, Hooks, boot, load_catalog
from leasehold.registry.pipelines import Catalog
from leasehold.services.deliver_notification import DeliveryHint, DeliveryOutcome, deliver
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import Report, sweep
from tests.worlds.emulators import environment, firestore_host, storage_bucket

Counts = Counter[Kind]

#: How Cloud Storage bills a request, by its method; deletions are free.
_CLASSES: Final[Mapping[str, Kind]] = {
    "POST": Kind.CLASS_A,
    "PUT": Kind.CLASS_A,
    "PATCH": Kind.CLASS_A,
    "GET": Kind.CLASS_B,
}


class FirestoreBill(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc] # grpc has no types
    """Counts what a client is billed for: documents read, written and deleted."""

    def __init__(self, host: str, counts: Counts) -> None:
        self._host = host
        self._counts = counts

    def connect(self, _: str, __: str) -> Any:
        """Make a client that is counted."""
        channel = grpc.intercept_channel(grpc.insecure_channel(self._host), self)
        return FirestoreClient(transport=FirestoreGrpcTransport(channel=channel))

    def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        """Count what a commit writes and deletes, and a transaction that is begun."""
        if details.method.endswith("/BeginTransaction"):
            self._counts[Kind.TRANSACTION] += 1
        for write in getattr(request, "writes", ()):
            self._counts[Kind.DELETE if write.delete else Kind.WRITE] += 1
        return go_on(details, request)

    def intercept_unary_stream(self, go_on: Any, details: Any, request: Any) -> Any:
        """Count the documents that are read; a query that finds none is billed as one."""
        if details.method.endswith("/RunQuery"):
            return _Found(go_on(details, request), self._counts)
        self._counts[Kind.READ] += len(getattr(request, "documents", ()))
        return go_on(details, request)


class _Found:
    """The answer of a query, whose documents are counted as they come."""

    def __init__(self, call: Any, counts: Counts) -> None:
        self._call = call
        self._counts = counts
        self._found = 0
        self._counts[Kind.READ] += 1

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        answer = next(self._call)
        if answer.document.name:
            self._found += 1
            self._counts[Kind.READ] += self._found > 1
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


class Costs:
    """An engine whose services are counted.

    Args:
        engine: the parts.
        tasks: its queue.
        told: its event bus, and what sends to its channels.
        counts: what was counted so far.
        clock: of the engine.
    """

    def __init__(
        self, engine: Engine, tasks: OwnTasks, told: Taken, counts: Counts, clock: MovedClock
    ) -> None:
        self.engine = engine
        self.counts = counts
        self._tasks = tasks
        self._told = told
        self._clock = clock

    def of_a_run(self, pipeline: str, given: Any) -> Counts:
        """Run a pipeline to its end, and tell of it; return what that took."""
        self.counts.clear()
        self._request()
        run = start_run(self.engine, StartRequest(pipeline, given)).manifest
        while self._tasks.waiting:
            task = self._tasks.waiting.pop()
            self.counts.update({Kind.TASK_CREATED: 1, Kind.TASK_DELIVERED: 1})
            self._request()
            execute_step(self.engine, Hint(task.run_id, task.generation))
        while self._told.messages:
            delivery = self._told.messages.pop().delivery
            self.counts.update({Kind.MESSAGE_PUBLISHED: 1, Kind.MESSAGE_DELIVERED: 1})
            self._request()
            hint = DeliveryHint(delivery.run_id, delivery.occurrence, delivery.channel)
            assert deliver(self.engine, hint) is DeliveryOutcome.ANNOUNCED
        assert get_run(self.engine, run.run_id).status == "COMPLETED"
        self.counts[Kind.READ] -= 1  # this look at the run
        return +Counter(self.counts)

    def of_a_sweep(self) -> Counts:
        """Sweep while nothing is due; return what that took."""
        self.counts.clear()
        self._request()
        assert sweep(self.engine, report=Report.ALWAYS).documents_read == 0
        return +Counter(self.counts)

    def _request(self) -> None:
        """Count a request of a function, and what Cloud Run logs of it."""
        self.counts.update({Kind.REQUEST: 1, Kind.LOG_LINE: 1})


@contextmanager
def counted(catalog: Catalog) -> Iterator[Costs]:
    """Open an engine on its own stores, or raise MissingEmulatorError."""
    counts: Counts = Counter()
    bill, clock = FirestoreBill(firestore_host(), counts), MovedClock()
    project = f"bench-{secrets.token_hex(4)}"
    documents = FirestoreDocuments(project, DATABASE, SystemClock(), connect=bill.connect)
    with storage_bucket() as (address, bucket), environment(STORAGE_EMULATOR_HOST=address):
        artifacts = CloudStorageArtifacts(bucket, "bench")
        _count_requests(artifacts, counts)
        tasks, told = OwnTasks(), Taken()
        bundle = boot(
            {"LEASEHOLD_ARTIFACTS": f"gs://{bucket}/bench"},
            catalog=catalog,
            clock=clock,
            documents=documents,
            tasks=tasks,
            around=Around(artifacts=lambda _: artifacts),
            isolation="inline",
            hooks=Hooks(may_continue=lambda: True, in_request=True),
        )

        def log(_: object) -> None:
            counts[Kind.LOG_LINE] += 1

        engine = replace(
            bundle.engine,
            events=told,
            channels=replace(bundle.engine.channels, open=lambda _: told),
            listeners=replace(bundle.engine.listeners, report=log, log=log),
        )
        PASS.append(_passing(engine, clock))
        try:
            yield Costs(engine, tasks, told, counts, clock)
        finally:
            PASS.pop()
            bundle.close()


def _passing(engine: Engine, clock: MovedClock) -> Callable[[float], object]:
    leases: Any = engine.leases

    def let_pass(seconds: float) -> None:
        clock.advance(seconds)
        leases.look()

    return let_pass


def _count_requests(artifacts: CloudStorageArtifacts, counts: Counts) -> None:
    """Count what the client asks Cloud Storage for, as it is billed."""

    def count(answer: Any, *_: object, **__: object) -> None:
        method, path = answer.request.method, answer.request.path_url.partition("?")[0]
        is_list = method == "GET" and path.endswith("/o")
        if kind := Kind.CLASS_A if is_list else _CLASSES.get(method):
            counts[kind] += 1

    bucket: Any = artifacts._of_this_process()  # noqa: SLF001 - its client has the requests
    bucket.client._http.hooks["response"].append(count)  # noqa: SLF001 - as above


def count_all() -> Mapping[str, Counts]:
    """Return what each of the runs takes that `docs/costs.py` has the prices of."""
    found: dict[str, Counts] = {}
    long, short = {"isShort": False}, {"isShort": True}
    with counted(SILENT) as costs:
        costs.of_a_run("minutes", long)  # the first one of a process looks for more
        found["minutes"] = costs.of_a_run("minutes", long)
        found["seconds"] = costs.of_a_run("minutes", short)
        found["idle sweep"] = costs.of_a_sweep()
    with counted(TOLD) as costs:
        costs.of_a_run("minutes", long)
        found["told"] = costs.of_a_run("minutes", long)
    with TemporaryDirectory() as folder, counted(load_catalog("pipelines.catalog")) as costs:
        for name in ("README.md", "guide.md"):
            (Path(folder) / name).write_text(
                f"# Leases\n\nA worker must renew its lease every 10 seconds.\n\nThis is {name}.\n"
            )
        costs.of_a_run("review", {"folder": folder})
        found["review"] = costs.of_a_run("review", {"folder": folder})
    return found


def measure() -> list[Figure]:
    """Return each count beside the one that the docs have."""
    documented = {**COUNTED, "idle sweep": IDLE_SWEEP}
    rows = []
    for name, counts in count_all().items():
        for kind in Kind:
            found, said = counts[kind], documented[name].get(kind, 0)
            row = figure(f"{name}: {kind}", "operations", [(found, said or 1)])
            rows.append(replace(row, floor=said, target="as documented", holds=found == said))
    return rows


def main() -> int:
    """Count and report; return the exit code."""
    rows = measure()
    report("run_costs", rows)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
