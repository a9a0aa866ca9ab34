"""The next step begins in the request of the one before, on each store, where its limits fit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.bootstrap import Hooks, boot
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.pauses import pause_step, resume_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.engines import OpenEngine
from tests.worlds.queues import CreatedTasks
from tests.worlds.stores import DOCUMENTS

pytestmark = pytest.mark.one_store

MINUTE = timedelta(minutes=1)
#: What a handler does before it returns, by its step.
MEANWHILE: dict[str, Callable[[StepContext], object]] = {}
CALLED: list[tuple[str, int]] = []


def work(ctx: StepContext, given: list[str]) -> list[str]:
    """Note the call; the environment may say at which step the process is killed."""
    if os.environ.get("KILLED_AT") == ctx.step:
        os.kill(os.getpid(), signal.SIGKILL)
    CALLED.append((ctx.step, ctx.attempt))
    MEANWHILE.get(ctx.step, lambda _: None)(ctx)
    return [*given, ctx.step]


def step(name: str, **fields: Any) -> StepDispatchEntry:
    defaults = {
        "handler": f"{__name__}:work",
        "agent_timeout": MINUTE,
        "dispatch_deadline": 2 * MINUTE,
        "isolation": "inline",
    }
    return StepDispatchEntry(step_type=name, **{**defaults, **fields})


def catalog_of(**of_second: Any) -> Catalog:
    steps = [step("first"), step("second", **of_second), step("third")]
    pipelines = [PipelineEntry(name="chain", steps=("first", "second", "third"))]
    return Catalog(Registry("dispatch", steps), Registry("pipelines", pipelines))


class World:
    """A function with its queue."""

    def __init__(self, engine: Engine, queue: CreatedTasks) -> None:
        self.engine, self.queue = engine, queue

    def start(self) -> Manifest:
        return start_run(self.engine, StartRequest("chain", [])).manifest

    def deliver(self, number: int = -1) -> Outcome:
        """Deliver a task; by default the one that was created last."""
        task = self.queue.created[number]
        return execute_step(self.engine, Hint(task.run_id, task.generation))

    def run(self) -> Manifest:
        return get_run(self.engine, self.queue.created[0].run_id)


Opened = Callable[..., World]


@pytest.fixture
def opened(open_engine: OpenEngine) -> Opened:
    """Opens a function with a catalog, and further variables."""
    MEANWHILE.clear()
    CALLED.clear()

    def open_(catalog: Catalog, may_continue: bool = True, **environ: str) -> World:
        queue = CreatedTasks()
        hooks = Hooks(may_continue=lambda: may_continue, in_request=True)
        return World(open_engine(catalog, tasks=queue, hooks=hooks, **environ), queue)

    return open_


@pytest.mark.each_store
def test_a_chain_of_short_steps_takes_one_task(opened: Opened) -> None:
    world = opened(catalog_of())
    world.start()

    outcome = world.deliver()
    done = world.run()

    assert (outcome, done.status) == ("completed", "COMPLETED")
    assert (len(world.queue.created), done.fencing_token) == (1, 3)
    assert done.position.dispatch.generation == 3
    assert CALLED == [("first", 1), ("second", 1), ("third", 1)]


def test_the_next_step_has_what_is_left_of_the_request(opened: Opened) -> None:
    """The queue waits no longer, so its deadline is that of the request."""
    world = opened(catalog_of())
    world.start()
    world.deliver()

    dispatch = world.run().position.dispatch

    assert 90 <= dispatch.deadline_s < 120
    assert (dispatch.sources["dispatchDeadline"], dispatch.task_of) == ("request", 1)
    assert dispatch.timeout_ms == 60_000


@pytest.mark.parametrize(
    ("of_second", "environ"),
    [
        ({"dispatch_deadline": 5 * MINUTE, "agent_timeout": 2 * MINUTE}, {}),
        ({"queue": "slow"}, {}),
        ({}, {"PIPELINE_OWN_TASKS": "all"}),
        ({}, {"PIPELINE_OWN_TASKS": "other,second"}),
    ],
)
def test_a_step_that_does_not_fit_or_is_bounded_by_its_queue_has_its_own_task(
    opened: Opened, of_second: dict[str, Any], environ: dict[str, str]
) -> None:
    world = opened(catalog_of(**of_second), **environ)
    world.start()

    outcome = world.deliver()
    run = world.run()

    assert (outcome, run.position.step, run.position.lease) == ("handed_off", "second", None)
    assert [task.generation for task in world.queue.created] == [1, 2]
    assert run.position.dispatch.sources["dispatchDeadline"] == "entry"
    assert run.position.dispatch.task_of is None


def test_a_worker_that_is_to_stop_takes_no_further_step(opened: Opened) -> None:
    world = opened(catalog_of(), may_continue=False)
    world.start()

    assert world.deliver() == "handed_off"
    assert len(world.queue.created) == 2


def test_a_run_that_is_paused_meanwhile_stays_where_it_is(opened: Opened) -> None:
    world = opened(catalog_of())
    run_id = world.start().run_id
    pause = OperationRequest(Operation.PAUSE, actor="ada")
    MEANWHILE["first"] = lambda _: operate(world.engine, run_id, pause)

    world.deliver()
    run = world.run()

    assert (run.paused, run.position.step, run.position.lease) == (True, "second", None)
    assert len(world.queue.created) == 1


def test_a_remote_step_is_left_to_its_workers(opened: Opened) -> None:
    world = opened(catalog_of(handler="remote"))
    run_id = world.start().run_id

    world.deliver()

    assert world.run().claimable == "second"
    assert acquire_run(world.engine, run_id, "worker").manifest.position.step == "second"


def test_a_step_that_fails_is_retried_by_its_own_task(opened: Opened) -> None:
    world = opened(catalog_of())
    world.start()
    MEANWHILE["second"] = lambda _: 1 / 0

    outcome = world.deliver()
    dispatch = world.run().position.dispatch

    assert outcome == "retry_scheduled"
    assert [task.generation for task in world.queue.created] == [1, 3]
    assert (dispatch.deadline_s, dispatch.task_of) == (120, None)


@pytest.mark.each_store
def test_a_task_that_comes_again_meanwhile_finds_the_lease(opened: Opened) -> None:
    """It is the task of all steps of its request, and wakes the run once that has died."""
    world = opened(catalog_of())
    world.start()
    again = []
    MEANWHILE["third"] = lambda _: again.append(world.deliver(0))

    outcome = world.deliver(0)

    assert (again, outcome) == (["lease_held"], "completed")
    assert len(CALLED) == 3
    assert [task.generation for task in world.queue.created] == [1, 3]  # the second one looks again


@pytest.mark.parametrize(
    "killed_at",
    [
        pytest.param("first", marks=pytest.mark.nightly),
        "second",
        pytest.param("third", marks=pytest.mark.nightly),
    ],
)
def test_a_killed_request_is_taken_up_by_its_task_at_the_step_it_was_at(
    kind: str, folder: Path, opened: Opened, killed_at: str
) -> None:
    world = opened(catalog_of(), PIPELINE_LEASE_TTL_S="2", PIPELINE_HEARTBEAT_S="0.5")
    run = world.start()
    environ = {
        **os.environ,
        "KIND": kind,
        "FOLDER": str(folder),
        "PIPELINE_LEASE_TTL_S": "2",
        "PIPELINE_HEARTBEAT_S": "0.5",
        "KILLED_AT": killed_at,
        "RUN_ID": run.run_id,
    }

    died = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import serve; serve()"],
        env=environ,
        check=False,
        timeout=60,
    )
    held = world.deliver(0)
    while world.run().position.lease is not None and world.deliver(0) == "lease_held":
        time.sleep(0.1)  # the lease of the process that was killed has to end
    done = world.run()

    assert died.returncode == -signal.SIGKILL
    assert held in ("lease_held", "completed")
    assert done.status == "COMPLETED"
    assert CALLED[0] == (killed_at, 2)
    assert done.steps[killed_at].attempts.expired == 1


def serve() -> None:
    """Work on the run that the environment names, as a function does."""
    with DOCUMENTS[os.environ["KIND"]](Path(os.environ["FOLDER"])) as documents:
        bundle = boot(
            {**os.environ, "LEASEHOLD_ARTIFACTS": f"file://{os.environ['FOLDER']}/artifacts"},
            catalog=catalog_of(),
            documents=documents,
            tasks=CreatedTasks(),
            hooks=Hooks(may_continue=lambda: True, in_request=True),
        )
        execute_step(bundle.engine, Hint(os.environ["RUN_ID"], 1))


def test_a_step_that_is_paused_in_all_runs_is_not_begun(opened: Opened, unique: str) -> None:
    second = f"second-{unique}"
    steps = [step("first"), step(second), step("third")]
    pipelines = [PipelineEntry(name="chain", steps=("first", second, "third"))]
    world = opened(Catalog(Registry("dispatch", steps), Registry("pipelines", pipelines)))
    pause_step(world.engine, second, why="the provider is down", actor="ada")
    world.start()

    world.deliver()
    run = world.run()
    resume_step(world.engine, second)

    assert (run.position.step, run.position.lease) == (second, None)
    assert CALLED == [("first", 1)]
