"""One override in the environment, followed to every limit that it sets for an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.cloud.tasks_v2 import Task as WireTask

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.adapters.cloud_tasks import CloudTasks
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.bootstrap import Bundle, boot
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.domain.effect import dispatch_task
from leasehold.domain.manifest import Manifest
from leasehold.registry.pipelines import Catalog
from leasehold.services.execute_step import Hint, arrive, run_steps
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import FrozenClock
from tests.api.devserver.cloud_tasks.conftest import LOCATION, official_client

#: What the entry says: the override is to be seen everywhere in place of it.
ENTRY = StepDispatchEntry(
    step_type="charge",
    handler=f"{__name__}:charge",
    agent_timeout=timedelta(minutes=10),
    dispatch_deadline=timedelta(minutes=15),
    isolation="inline",
)
OVERRIDES = {"PIPELINE_CHARGE_TIMEOUT_MS": "20000", "PIPELINE_CHARGE_DEADLINE_S": "40"}

SEEN: list[timedelta] = []


def charge(ctx: StepContext, given: Any) -> Any:
    """Note how long it has."""
    SEEN.append(ctx.time_left())
    return given


@pytest.fixture
def url() -> Iterator[str]:
    with CloudTasksDouble() as double:
        yield double.start()


@pytest.fixture
def bundle(url: str, tmp_path: Path) -> Iterator[Bundle]:
    clock = FrozenClock()
    catalog = Catalog(
        steps=Registry("dispatch", [ENTRY]),
        pipelines=Registry("pipelines", [PipelineEntry(name="shop", steps=("charge",))]),
    )
    bundle = boot(
        OVERRIDES | {"LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts"},
        catalog=catalog,
        clock=clock,
        documents=SqliteDocuments(tmp_path / "runs.db", clock),
        tasks=CloudTasks("p", "l", "http://127.0.0.1:1/execute_step", emulator_url=url),
    )
    yield bundle
    bundle.close()


def task_of(url: str, run: Manifest) -> WireTask:
    with official_client(url) as client:
        name = f"{LOCATION}/queues/charge/tasks/{dispatch_task(run).name}"
        return client.get_task(name=name)


def test_an_override_sets_each_limit_of_the_attempt(bundle: Bundle, url: str) -> None:
    """Frozen with the dispatch: the task, the handler and the lease go by one decision."""
    SEEN.clear()
    with official_client(url) as client:  # nobody is to deliver it
        client.create_queue(parent=LOCATION, queue={"name": f"{LOCATION}/queues/charge"})
        client.pause_queue(name=f"{LOCATION}/queues/charge")
    run = start_run(bundle.engine, StartRequest("shop", {})).manifest
    task = task_of(url, run)
    acquired = arrive(bundle.engine, Hint(run.run_id, 1))
    run_steps(bundle.engine, acquired)

    assert run.position.dispatch.sources["agentTimeout"] == "PIPELINE_CHARGE_TIMEOUT_MS"
    assert task.dispatch_deadline == timedelta(seconds=40)
    assert [timedelta(seconds=20)] == SEEN
    lease = acquired.answer.manifest.position.lease
    assert lease is not None
    assert lease.max_expires_at - lease.acquired_at == timedelta(seconds=40, minutes=5)
    assert get_run(bundle.engine, run.run_id).status == "COMPLETED"
