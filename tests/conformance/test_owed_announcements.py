"""Announcements on both stores: owed in the commit that ends or blocks a run, then published."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold import PipelineEntry, Registry
from leasehold.bounded_calls import BoundedCalls
from leasehold.domain.announcement import AnnouncedEvent
from leasehold.domain.delivery import Delivery, delivery_ref
from leasehold.domain.effect import owed_effects
from leasehold.domain.event_message import EventMessage
from leasehold.domain.lease import fence_of
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.status import Outcome
from leasehold.domain.stored import StoredDocument, Write
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Query
from leasehold.registry.channels import LogChannel
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, fail_step
from leasehold.services.batch import batch
from leasehold.services.due_deliveries import take_up_deliveries_of
from leasehold.services.engine import Engine, publish
from leasehold.services.execute_step import Hint, arrive, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import RunFilter, get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.worker.bounded_sends import BoundedEvents
from tests.worlds.catalogs.sample import STEPS
from tests.worlds.engines import OpenEngine
from tests.worlds.queues import Bus, CreatedTasks

pytestmark = pytest.mark.one_store

PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="one", steps=("add",)),
        PipelineEntry(name="refuse", steps=("refuse",)),
        PipelineEntry(name="remote", steps=("away",)),
    ],
)

CHANNELS = Registry(
    "channels",
    [
        LogChannel(name="log"),
        LogChannel(
            name="ops", events=(AnnouncedEvent.RUN_BLOCKED, AnnouncedEvent.RUN_DEAD_LETTERED)
        ),
    ],
)
CATALOG = Catalog(STEPS, PIPELINES, channels=CHANNELS)

CANCEL = OperationRequest(Operation.CANCEL, "ann", "a wrong input")


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def logged() -> list[str]:
    return []


@pytest.fixture
def engine(open_engine: OpenEngine, bus: Bus, logged: list[str]) -> Engine:
    """One whose channel `log` gets everything, and `ops` gets urgent events."""
    engine = open_engine(CATALOG, tasks=CreatedTasks())
    return replace(engine, events=bus, listeners=replace(engine.listeners, log=logged.append))


def start(engine: Engine, pipeline: str, label: str = "any") -> str:
    request = StartRequest(pipeline, {"n": 1}, labels={"team": label})
    return start_run(engine, request).manifest.run_id


def deliveries(engine: Engine, run_id: str) -> list[Delivery]:
    query = Query("deliveries", order_by="createdAt", equal={"runId": run_id}, descending=True)
    found = engine.documents.query(query)
    return sorted(
        (Delivery.model_validate(one.document) for one in found),
        key=lambda one: (one.created_at, one.channel),
    )


def told(engine: Engine, run_id: str) -> list[tuple[str, str, str]]:
    return [(one.event, one.occurrence, one.channel) for one in deliveries(engine, run_id)]


def check_agreement(engine: Engine, bus: Bus, run_id: str) -> None:
    """The run, the records and the messages say the same."""
    announcement = get_run(engine, run_id).announcement
    assert announcement is not None
    last = [one for one in deliveries(engine, run_id) if one.occurrence == announcement.occurrence]
    assert [one.channel for one in last] == [*announcement.channels]
    (published,) = bus.published
    assert [message.delivery for message in published] == last


@pytest.mark.each_store
def test_a_run_that_is_completed_is_announced_by_the_commit_of_its_output(
    engine: Engine, bus: Bus
) -> None:
    run_id = start(engine, "one")

    outcome = execute_step(engine, Hint(run_id, 1))

    assert outcome is Outcome.COMPLETED
    assert told(engine, run_id) == [("run_completed", "1", "log")]
    check_agreement(engine, bus, run_id)


def test_a_run_that_is_given_up_is_told_to_all_in_one_call(engine: Engine, bus: Bus) -> None:
    run_id = start(engine, "refuse")

    execute_step(engine, Hint(run_id, 1))

    assert told(engine, run_id) == [
        ("run_dead_lettered", "1", "log"),
        ("run_dead_lettered", "1", "ops"),
    ]
    check_agreement(engine, bus, run_id)


@pytest.mark.each_store
def test_a_run_is_cancelled_once_while_a_worker_holds_it(engine: Engine, bus: Bus) -> None:
    run_id = start(engine, "one")
    attempt = engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, 1)))

    operate(engine, run_id, CANCEL)
    late = fail_step(
        engine,
        LeaseCredentials(run_id, attempt.fence),
        ErrorRecord(type="E", code="e", message="late"),
        permanent=False,
    )

    assert late.outcome is Outcome.CANCELLED
    assert told(engine, run_id) == [("run_cancelled", "1", "log")]
    (one,) = deliveries(engine, run_id)
    assert one.summary.endswith("at step add by ann: a wrong input")
    bus.published = bus.published[:1]  # the late worker publishes it again, which is free
    check_agreement(engine, bus, run_id)


@pytest.mark.each_store
def test_a_batch_tells_of_each_run(engine: Engine, unique: str) -> None:
    runs = [start(engine, "one", unique) for _ in range(3)]

    batch(engine, CANCEL, RunFilter(label=f"team:{unique}"), limit=9, dry_run=False)

    assert [told(engine, run_id) for run_id in runs] == [[("run_cancelled", "0", "log")]] * 3


def test_a_remote_worker_that_fails_for_good_has_it_told(engine: Engine, bus: Bus) -> None:
    run_id = start(engine, "remote")
    claimed = acquire_run(engine, run_id, "vm-1")
    credentials = LeaseCredentials(run_id, fence_of(claimed.manifest))
    error = ErrorRecord(type="E", code="e", message="gone")

    fail_step(engine, credentials, error, permanent=True)

    assert {event for event, *_ in told(engine, run_id)} == {"run_dead_lettered"}
    check_agreement(engine, bus, run_id)


@pytest.mark.each_store
def test_what_an_earlier_run_of_that_id_left_fails_no_commit(engine: Engine, bus: Bus) -> None:
    run_id = start(engine, "one")
    left = {"runId": run_id, "state": "announced", "left": "over"}
    engine.documents.transact(delivery_ref(run_id, "1", "log"), lambda _, __: Write(None, left))

    assert execute_step(engine, Hint(run_id, 1)) is Outcome.COMPLETED

    (one,) = deliveries(engine, run_id)
    assert (one.state, one.model_extra) == ("due", {})
    check_agreement(engine, bus, run_id)


# -- a bus that does not work ----------------------------------------------------------------------


class Broken:
    """A bus on which nothing can be published."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def publish(self, _: Sequence[EventMessage]) -> None:
        raise self._error


class Hanging:
    """A bus that answers only when it is released."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def publish(self, _: Sequence[EventMessage]) -> None:
        self.over.wait(60)


@pytest.mark.parametrize(
    "error",
    [StoreUnavailableError(store="bus", problem="it is away"), RuntimeError("a mistake")],
    ids=["away", "mistaken"],
)
def test_a_bus_that_fails_fails_no_run(engine: Engine, logged: list[str], error: Exception) -> None:
    run_id = start(engine, "refuse")

    outcome = execute_step(replace(engine, events=Broken(error)), Hint(run_id, 1))

    assert outcome is Outcome.DEAD_LETTERED
    assert logged == [f"due, and published by the sweep: {run_id}:1:log, {run_id}:1:ops: {error}"]
    assert [one.state for one in deliveries(engine, run_id)] == ["due", "due"]


def test_a_bus_that_hangs_is_left_alone(engine: Engine, logged: list[str]) -> None:
    hanging = Hanging()
    bounded = BoundedEvents(hanging, engine.clock, BoundedCalls("publish", 0.01, most_late=1))
    runs = [start(engine, "one") for _ in range(2)]
    try:
        for run_id in runs:
            execute_step(replace(engine, events=bounded), Hint(run_id, 1))
    finally:
        hanging.over.set()

    assert len(logged) == 2
    assert "The store event bus does not answer: it has not answered yet" in logged[0]
    assert [len(deliveries(engine, run_id)) for run_id in runs] == [1, 1]


def test_a_record_that_stands_under_anothers_name_is_not_taken_up(engine: Engine, bus: Bus) -> None:
    """It could not be announced, and each look would publish it once more."""
    run_id = start(engine, "one")
    operate(engine, run_id, CANCEL)
    (due,) = deliveries(engine, run_id)
    copied = delivery_ref(run_id, due.occurrence, "copied")
    engine.documents.transact(copied, lambda *_: Write(None, StoredDocument(due)))
    bus.published.clear()

    take_up_deliveries_of(engine, run_id)

    assert [[one.delivery for one in messages] for messages in bus.published] == [[due]]


def test_a_task_is_created_before_any_message_is_published(engine: Engine, bus: Bus) -> None:
    """A run waits for its task; nothing else that is owed may be in its way."""
    order: list[str] = []
    tasks: Any = SimpleNamespace(create=lambda _: order.append("task"))
    events: Any = SimpleNamespace(publish=lambda _: order.append("messages"))
    ended, waits = start(engine, "one"), start(engine, "one")
    operate(engine, ended, CANCEL)
    messages = map(EventMessage, deliveries(engine, ended))

    owed = [*messages, *owed_effects(get_run(engine, waits))]
    publish(replace(engine, tasks=tasks, events=events), owed)

    assert order == ["task", "messages"]
