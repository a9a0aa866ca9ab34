"""A settlement stands, its answer is lost, and the store is away for longer than the lease runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.bootstrap import Bundle, boot, load_catalog
from leasehold.domain.change import Change
from leasehold.domain.effect import Task
from leasehold.domain.status import Outcome
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Committed
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import FrozenClock

AWAY = timedelta(seconds=60)  # a lease runs for 30 s
ENDINGS = (Outcome.HANDED_OFF, Outcome.COMPLETED)


class LosesAnswers(SqliteDocuments):
    """The store; it loses the answer to each first settlement with this outcome."""

    def __init__(self, path: Path, clock: FrozenClock) -> None:
        super().__init__(path, clock)
        self.clock = clock
        self.loses: Outcome | None = None
        self.back_at = 0.0

    def transact(self, *args: Any, **options: Any) -> Committed[Any]:
        if self.clock.monotonic() < self.back_at:
            raise StoreUnavailableError(store="the test", problem="it is away")
        committed = super().transact(*args, **options)
        change = committed.answer
        if isinstance(change, Change) and change.changed and change.outcome is self.loses:
            self.loses = None
            self.back_at = self.clock.monotonic() + AWAY.total_seconds()
            raise StoreUnavailableError(store="the test", problem="its answer was lost")
        return committed


class Tasks(InProcessTasks):
    """The queue, which notes what was created."""

    def __init__(self, clock: FrozenClock) -> None:
        super().__init__(clock)
        self.created: list[str] = []

    def create(self, task: Task) -> None:
        self.created.append(task.queue.replace("-", "_"))
        super().create(task)


@pytest.fixture
def bundle(tmp_path: Path, clock: FrozenClock) -> Iterator[Bundle]:
    bundle = boot(
        {
            "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
            "LEASEHOLD_ISOLATION": "inline",
            "PIPELINE_LEASE_TTL_S": "30",
        },
        catalog=load_catalog("tests.worlds.catalogs.sample"),
        clock=clock,
        documents=LosesAnswers(tmp_path / "runs.db", clock),
        tasks=Tasks(clock),
    )
    yield bundle
    bundle.close()


def story(engine: Engine, run_id: str) -> Sequence[str]:
    return [str(event.type) for event in timeline_of(engine, run_id)]


@pytest.mark.parametrize("goes_on", [True, False], ids=["takes the next step along", "one step"])
@pytest.mark.parametrize("loses", ENDINGS)
def test_a_settlement_that_stands_is_answered_after_the_end_of_the_lease(
    bundle: Bundle, clock: FrozenClock, loses: Outcome, goes_on: bool
) -> None:
    engine = replace(
        bundle.engine, process=replace(bundle.engine.process, may_continue=lambda: goes_on)
    )
    documents, tasks = engine.documents, engine.tasks
    assert isinstance(documents, LosesAnswers)
    assert isinstance(tasks, Tasks)
    run = start_run(engine, StartRequest("three", {"n": 1})).manifest
    began, documents.loses = clock.monotonic(), loses
    watching = clock.watched_by(engine.leases.look)

    with watching:
        outcomes = []
        for step in run.plan:
            now = get_run(engine, run.run_id)
            if now.current_step == step and not now.is_terminal:
                hint = Hint(run.run_id, now.position.dispatch.generation)
                outcomes.append(execute_step(engine, hint))

    done = get_run(engine, run.run_id)
    assert clock.monotonic() - began > AWAY.total_seconds()
    assert outcomes == (["completed"] if goes_on else ["handed_off", "handed_off", "completed"])
    assert tasks.created == ([run.plan[0]] if goes_on else list(run.plan))
    assert done.status == "COMPLETED"
    assert [done.steps[step].attempts.ended for step in run.plan] == [0, 0, 0]
    assert not {"lease_lost", "step_terminated", "step_recovered"} & {*story(engine, run.run_id)}
