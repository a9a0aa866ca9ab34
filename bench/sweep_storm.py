"""What one call of the deployed sweep does where thousands of runs are due in four queues.

The real function under the real framework, on SQLite or the Firestore emulator, with the double of
Cloud Tasks: the queues are paused and hold the task of each run that waits. Behind them is the run
of a worker that is dead.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import functions_framework
from google.cloud.tasks_v2 import Queue

from bench.measuring import Figure, figure, report
from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.cloud_tasks import make_client
from leasehold.bootstrap import boot
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.effect import dispatch_task
from leasehold.domain.lifecycle import NewRun
from leasehold.domain.manifest import Manifest, manifest_of, run_ref, to_document
from leasehold.domain.stored import Document, Ref, Write, replace
from leasehold.logs.attempt import EVENTS_LOG
from leasehold.registry.function_table import FUNCTIONS
from leasehold.services.engine import Engine
from tests.worlds.emulators import MissingEmulatorError, environment, firestore_host

FUNCTION: Final = Path(__file__).parents[1] / "shared/leasehold/functions" / "sweep_dead_letters.py"
WAITING: Final = 2000
QUEUES: Final = tuple(f"step-{number}" for number in range(1, 5))
DEAD: Final = "dead-worker"
_LOCATION: Final = "projects/bench/locations/local"
_CLOCK: Final = SystemClock()
_AT_ONCE: Final = 400  # a commit of Firestore has 500 writes at most

#: Cloud Scheduler calls once a minute: a lease that is over at the worst time waits so long.
TICK: Final = timedelta(seconds=60)
#: How long after the end of its lease a dead worker is noticed at most.
NOTICED_WITHIN: Final = timedelta(seconds=65)


def no_op(ctx: StepContext, given: Any) -> Any:  # noqa: ARG001 - a handler's shape
    """Do nothing."""
    return given


STEPS: Final = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler="bench.sweep_storm:no_op",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
        for name in QUEUES
    ],
)
PIPELINES: Final = Registry(
    "pipelines", [PipelineEntry(name=name, steps=(name,)) for name in QUEUES]
)


@dataclass(frozen=True, slots=True)
class Storm:
    """A store with runs that are due, and the sweep of it."""

    engine: Engine
    waiting: Sequence[str]
    post: Callable[[], Mapping[str, Any]]

    def dead_run(self) -> Manifest:
        """Return the run of the dead worker as it is stored."""
        found = self.engine.documents.get(run_ref(DEAD))
        assert found is not None
        return manifest_of(DEAD, found.document)

    def make_due(self) -> None:
        """Have the alarm of each run that waits ring again."""
        for run_id in self.waiting:
            found = self.engine.documents.get(run_ref(run_id))
            assert found is not None
            run = manifest_of(run_id, found.document)
            due = replace(run, alarm_at=run.position.dispatch.not_before + self.engine.rules.grace)
            dispatch = replace(run.position.dispatch, seen_at=None)
            long_ago = replace(due, position=replace(due.position, dispatch=dispatch))
            document = to_document(long_ago)
            self.engine.documents.transact(found.ref, partial(_put, document))


@contextmanager
def storm(waiting: int, **store: str) -> Iterator[Storm]:
    """Fill a store and its queues, and serve the sweep.

    Args:
        waiting: how many runs wait in four queues that are paused.
        store: the settings that name the store; none: SQLite in a file.
    """
    with TemporaryDirectory() as folder, CloudTasksDouble() as double:
        settings = {
            "LEASEHOLD_STORE": f"sqlite:///{folder}/runs.db",
            "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
            "LEASEHOLD_ARTIFACTS_SHARED": "yes",
            "LEASEHOLD_CATALOG": "bench.sweep_storm",
            "LEASEHOLD_TASKS": "cloud-tasks://bench/local",
            "LEASEHOLD_FUNCTION_URL": "http://127.0.0.1:9",
            "CLOUD_TASKS_EMULATOR_URL": double.start(),
            **store,
        }
        with environment(**settings):
            bundle = boot()
            try:
                ids = [f"r-{number}" for number in range(waiting)]
                _fill(bundle.engine, ids)
                with _function() as post:
                    yield Storm(bundle.engine, ids, post)
            finally:
                bundle.close()


@contextmanager
def _function() -> Iterator[Callable[[], Mapping[str, Any]]]:
    """Serve the function as the framework does; lend what calls it once."""
    create_app: Any = functions_framework.create_app  # it has no types
    client = create_app("sweep_dead_letters", str(FUNCTION)).test_client()

    def post() -> Mapping[str, Any]:
        answer = client.post("/", headers={"X-CloudScheduler": "true"})
        assert answer.status_code == 200, answer.get_json()  # noqa: PLR2004 - HTTP's
        return dict(answer.get_json())

    provider: Any = sys.modules["sweep_dead_letters"].provider
    try:
        yield post
    finally:
        provider.close()
        del sys.modules["sweep_dead_letters"]


def _fill(engine: Engine, ids: Sequence[str]) -> None:
    client = make_client(os.environ["CLOUD_TASKS_EMULATOR_URL"])
    for name in QUEUES:
        queue = f"{_LOCATION}/queues/{name}"
        client.create_queue(parent=_LOCATION, queue=Queue(name=queue))
        client.pause_queue(name=queue)
    runs = [_waiting(engine, run_id, QUEUES[n % 4]) for n, run_id in enumerate(ids)]
    every = iter([*runs, _of_a_dead_worker(engine)])
    while batch := list(islice(every, _AT_ONCE)):
        creates = {run_ref(run.run_id): to_document(run) for run in batch}
        engine.documents.transact(run_ref("nobody"), partial(_create, creates))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda run: engine.tasks.create(dispatch_task(run)), runs))


def _create(creates: Mapping[Ref, Document], _: Document | None, __: datetime) -> Write[None]:
    return Write(None, creates=creates)


def _put(document: Document, _: Document | None, __: datetime) -> Write[None]:
    return Write(None, document)


def _waiting(engine: Engine, run_id: str, pipeline: str, ago: float = 600) -> Manifest:
    new = NewRun(
        run_id=run_id,
        pipeline=pipeline,
        plan=engine.catalog.pipeline(pipeline).plan,
        input=KeptValue(text="{}"),
        input_digest="0" * 64,
        nonce="0" * 16,
    )
    at = _CLOCK.now() - timedelta(seconds=ago)
    return lifecycle.start(None, at, rules=engine.rules, new=new).manifest


def _of_a_dead_worker(engine: Engine) -> Manifest:
    """Return a run whose lease is over right now: the freshest of all alarms."""
    ttl = engine.rules.lease_ttl.total_seconds()
    return lifecycle.arrive(
        _waiting(engine, DEAD, QUEUES[0], ago=ttl),
        _CLOCK.now() - engine.rules.lease_ttl,
        rules=engine.rules,
        generation=1,
        lease_id="0" * 16,
        holder="bench+0/1@2",
    ).manifest


class _Lines(logging.Handler):
    """Keeps what is logged of sweeps."""

    def __init__(self) -> None:
        super().__init__()
        self.sweeps: list[Mapping[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        facts = json.loads(record.getMessage())
        if facts["event"] == "SWEEP_FINISHED":
            self.sweeps.append(facts)


def measure(of: str, waiting: int = WAITING, **store: str) -> list[Figure]:
    """Return what one call attends to, when, and what it says of it."""
    lines, log = _Lines(), logging.getLogger(EVENTS_LOG)
    log.addHandler(lines)
    try:
        with storm(waiting, **store) as place:
            began_at, began = _CLOCK.now(), time.perf_counter()
            answer = place.post()
            took = time.perf_counter() - began
            recovered = place.dead_run()
            again = place.post()
    finally:
        log.removeHandler(lines)
    assert recovered.position.dispatch.generation == 2, recovered  # noqa: PLR2004 - the one after the first
    assert (again["documentsRead"], again["more"]) == (0, False), again
    noticed = TICK + (recovered.updated_at - began_at)
    attended = answer["stillQueued"] + answer["recovered"]
    half = FUNCTIONS["sweep_dead_letters"].timeout.total_seconds() / 2
    named = f"{waiting:,} runs that wait in 4 paused queues, and a dead worker's, on {of}"
    exactly = {"at_least": 1.0, "at_most": 1.0}
    return [
        figure(f"attended by one call: {named}", "runs", [(attended, waiting + 1)], **exactly),
        figure(f"time of the call: {named}", "s", [(took, half)], at_most=1.0),
        figure(
            f"noticed after the end of the lease, at most: {named}",
            "s",
            [(noticed.total_seconds(), NOTICED_WITHIN.total_seconds())],
            at_most=1.0,
        ),
        figure(
            f"oldest pending, as the line says: {named}",
            "s",
            [(lines.sweeps[0]["oldestPendingS"], 600)],
            at_least=1.0,
        ),
    ]


def main() -> int:
    """Measure and report; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=WAITING)
    waiting = parser.parse_args().waiting
    figures = measure("SQLite", waiting)
    try:
        figures += measure("Firestore", waiting, **firestore(firestore_host()))
    except MissingEmulatorError as missing:
        print(f"NO FIRESTORE EMULATOR, so that half is left out: {missing}")
    report("sweep_storm", figures)
    return 0


def firestore(host: str) -> Mapping[str, str]:
    """Return the settings of a store in the emulator."""
    project = f"bench-{secrets.token_hex(4)}"
    return {
        "LEASEHOLD_STORE": f"firestore://{project}/(default)",
        "FIRESTORE_EMULATOR_HOST": host,
    }


if __name__ == "__main__":
    sys.exit(main())
