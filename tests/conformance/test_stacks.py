"""A person asks an attempt of another process what it does: on each store, with real handlers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.domain import lifecycle
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.domain.trace import TraceEvent
from leasehold.errors import NotAllowedError
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import Engine, change_run
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import request_stack
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.worker.sandbox import sandboxed_attempt
from tests.worlds.catalogs import lasting
from tests.worlds.engines import OpenEngine
from tests.worlds.waiting import until

pytestmark = [pytest.mark.sandboxed, pytest.mark.one_store]

HANDLERS = ("sleeps", "spins", "waits_in_c", "awaits")
#: By which a worker hears of a request.
HEARTBEAT = timedelta(seconds=0.2)


def catalog() -> Catalog:
    steps = [
        StepDispatchEntry(
            step_type=f"{name}{'-inline' if isolation == 'inline' else ''}",
            handler=f"{lasting.__name__}:{name}",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            heartbeat_interval=HEARTBEAT,
            isolation=isolation,
        )
        for name in HANDLERS
        for isolation in ("process", "inline")
    ]
    pipelines = [PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in steps]
    return Catalog(steps=Registry("dispatch", steps), pipelines=Registry("pipelines", pipelines))


@dataclass
class Worker:
    """A process that works on the store, and one beside it that is asked by people."""

    engine: Engine
    other: Engine
    go_on: Path
    threads: list[threading.Thread] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def begin(self, pipeline: str) -> str:
        """Begin a run whose handler is there by now."""
        given = str(self.go_on)
        run_id = start_run(self.other, StartRequest(pipeline, given)).manifest.run_id
        hint = Hint(run_id, 1)
        work = threading.Thread(
            target=lambda: self.outcomes.append(execute_step(self.engine, hint))
        )
        work.start()
        self.threads.append(work)
        until(lambda: self.run(run_id).steps[pipeline].progress)
        return run_id

    def run(self, run_id: str) -> Manifest:
        return get_run(self.other, run_id)

    def ask(self, run_id: str, actor: str = "ada") -> Manifest:
        return request_stack(self.other, run_id, actor)

    def stacks(self, run_id: str) -> list[TraceEvent]:
        """The answers so far."""
        story = timeline_of(self.other, run_id)
        return [event for event in story if event.type == "stack_taken"]

    def end(self) -> None:
        self.go_on.touch()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def worker(
    open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Worker]:
    # On a busy machine a child may get no time for seconds: each wait ends when its answer comes.
    monkeypatch.setattr(sandboxed_attempt, "_LIVE_STACKS_TIMEOUT_S", 60.0)
    monkeypatch.setattr(sandboxed_attempt, "_STACKS_TIMEOUT_S", 50.0)
    monkeypatch.setattr(sandboxed_attempt, "_STACKS_QUIET_S", 0.2)
    worker = Worker(open_engine(catalog()), open_engine(catalog()), tmp_path / "go-on")
    yield worker
    worker.end()


@pytest.mark.parametrize(
    ("pipeline", "line"),
    [
        ("sleeps", "the line it sleeps on"),
        ("waits_in_c", "in waits_in_c"),  # two of its lines release the lock
        ("awaits", "the line it awaits on"),
        ("spins-inline", "while not _is_there(given):"),
        ("awaits-inline", "the line it awaits on"),
    ],
)
def test_the_worker_answers_with_its_next_heartbeat_and_its_handler_goes_on(
    worker: Worker, pipeline: str, line: str
) -> None:
    run_id = worker.begin(pipeline)

    worker.ask(run_id)
    (event,) = until(lambda: worker.stacks(run_id), 90)

    facts = event.model_extra or {}
    assert (event.step, event.attempt, facts["actor"]) == (pipeline, 1, "ada")
    assert line in (event.stacks or "")
    assert (event.detail or "").startswith("It is at lasting.py:")
    run = worker.run(run_id)
    assert run.position.lease is not None
    assert run.position.lease.stack_request is None
    worker.end()
    assert worker.outcomes == [Outcome.COMPLETED]
    assert len(worker.stacks(run_id)) == 1


@pytest.mark.each_store
def test_two_who_ask_at_once_get_the_same_answer(worker: Worker) -> None:
    run_id = worker.begin("sleeps")

    with ThreadPoolExecutor(2) as threads:
        asked = [*threads.map(partial(worker.ask, run_id), ("ada", "bob"))]
    until(lambda: worker.stacks(run_id), 90)
    worker.end()

    requests = [run.position.lease and run.position.lease.stack_request for run in asked]
    assert requests[0] == requests[1]
    assert len(worker.stacks(run_id)) == 1


def test_who_asks_again_after_the_answer_gets_another(worker: Worker) -> None:
    run_id = worker.begin("sleeps")

    for count in (1, 2):
        worker.ask(run_id)
        until(lambda count=count: len(worker.stacks(run_id)) == count, 90)


def test_an_attempt_that_ended_before_it_heard_of_it_leaves_no_request(worker: Worker) -> None:
    run_id = worker.begin("sleeps")
    worker.engine.leases.close()  # it hears of nothing any more
    worker.ask(run_id)

    worker.end()

    assert worker.run(run_id).status == "COMPLETED"
    assert worker.stacks(run_id) == []
    with pytest.raises(NotAllowedError, match="allowed when it is at work in an attempt"):
        worker.ask(run_id)


def test_a_worker_that_lost_its_lease_meanwhile_answers_nothing(worker: Worker) -> None:
    """As one that was taken for dead: the request ended with the lease."""
    run_id = worker.begin("sleeps")
    (held,) = worker.engine.leases.held_attempts()
    worker.engine.leases.close()  # it hears of it below, when it is too late
    lease = worker.ask(run_id).position.lease
    assert lease is not None
    expire = partial(
        lifecycle.expire, rules=worker.other.rules, lease_id=lease.lease_id, holder_gone=True
    )
    change_run(worker.other, run_id, expire)

    held.beat()
    worker.end()

    assert worker.outcomes == [Outcome.LEASE_LOST]
    assert worker.stacks(run_id) == []
    assert worker.run(run_id).position.lease is None
