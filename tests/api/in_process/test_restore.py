"""A store that is put back to an earlier time goes on from there, though its queue has gone on.

Names of tasks are taken as Cloud Tasks takes them: one that was delivered is not given again.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.effect import Task
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import Outcome
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock
from tests.worlds.catalogs import sample
from tests.worlds.engines import engine_on_store


class Queue:
    """Has what is not delivered yet, and takes no name twice."""

    def __init__(self) -> None:
        self.waiting: list[Task] = []
        self.of_before = 0  # how many further names were given before the store was put back
        self._taken: set[str] = set()

    def create(self, task: Task) -> None:
        if task.name not in self._taken and self.of_before:
            self.of_before -= 1
            self._taken.add(task.name)
        elif task.name not in self._taken:
            self._taken.add(task.name)
            self.waiting.append(task)

    def exists(self, task: Task) -> bool:
        return any(one.name == task.name for one in self.waiting)

    def deliver(self, engine: Engine) -> list[Outcome]:
        """Deliver what waits now, and return what became of each."""
        due, self.waiting = self.waiting, []
        return [execute_step(engine, Hint(one.run_id, one.generation)) for one in due]


@contextmanager
def opened(
    folder: Path, file: str, clock: FrozenClock, queue: Queue, **settings: str
) -> Iterator[Engine]:
    documents = SqliteDocuments(folder / file, clock)
    with engine_on_store(documents, folder, sample, clock=clock, tasks=queue, **settings) as engine:
        yield engine
        documents.close()


def begin(engine: Engine, key: str = "order-1") -> str:
    return start_run(engine, StartRequest("three", {"n": 1}, key)).manifest.run_id


def swept_until_over(engine: Engine, clock: FrozenClock, queue: Queue, run_id: str) -> Manifest:
    """Return the run after so many minutes of sweeps and deliveries as it takes."""
    for _ in range(60):
        clock.advance(timedelta(minutes=1))
        sweep(engine)
        queue.deliver(engine)
        if (run := get_run(engine, run_id)).is_terminal:
            return run
    raise AssertionError(run)


def test_a_run_goes_on_from_where_a_restored_store_has_it(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """Its task is of a later time, and is refused; the name of the next one is taken already."""
    queue = Queue()
    with opened(tmp_path, "runs.db", clock, queue) as engine:
        run_id = begin(engine)
        queue.deliver(engine)
        at_backup = get_run(engine, run_id)
        with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as store:
            store.execute("VACUUM INTO ?", [str(tmp_path / "restored.db")])
        queue.deliver(engine)
        gone_on = get_run(engine, run_id)
    assert gone_on.position.dispatch.generation == at_backup.position.dispatch.generation + 1

    clock.advance(timedelta(hours=3))
    with opened(tmp_path, "restored.db", clock, queue) as engine:
        assert queue.deliver(engine) == [Outcome.REJECTED]
        run = swept_until_over(engine, clock, queue, run_id)
        story = [str(event.type) for event in timeline_of(engine, run_id)]

    assert (run.status.value, run.dead_lettered) == ("COMPLETED", False)
    assert run.position.dispatch.generation > gone_on.position.dispatch.generation
    assert story.count("step_completed") == 3  # the second step once more, and the third


def test_a_run_that_is_younger_than_the_backup_begins_anew_with_its_key(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """No process knows it; its task ends, and its caller gets the same run by the same call."""
    queue = Queue()
    with opened(tmp_path, "runs.db", clock, queue) as engine:
        with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as store:
            store.execute("VACUUM INTO ?", [str(tmp_path / "restored.db")])
        run_id = begin(engine)

    with opened(tmp_path, "restored.db", clock, queue) as engine:
        assert queue.deliver(engine) == [Outcome.REJECTED]
        assert begin(engine) == run_id
        assert [task.run_id for task in queue.waiting] == [run_id]  # under a name of its own
        assert swept_until_over(engine, clock, queue, run_id).status.value == "COMPLETED"


def test_a_run_that_ended_after_the_backup_ends_once_more(
    tmp_path: Path, clock: FrozenClock
) -> None:
    """Its files and its archive are there already."""
    queue = Queue()
    with opened(tmp_path, "runs.db", clock, queue) as engine:
        run_id = begin(engine)
        with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as store:
            store.execute("VACUUM INTO ?", [str(tmp_path / "restored.db")])
        first = swept_until_over(engine, clock, queue, run_id)

    with opened(tmp_path, "restored.db", clock, queue) as engine:
        again = swept_until_over(engine, clock, queue, run_id)

    assert again.status is first.status
    assert again.steps[again.current_step].output == first.steps[first.current_step].output


@pytest.mark.parametrize(
    ("settings", "status"),
    [({}, "NEVER_STARTED"), ({"PIPELINE_MAX_INTERRUPTIONS": "1000"}, "COMPLETED")],
)
def test_a_day_of_taken_names_gives_no_run_up_where_the_page_is_followed(
    tmp_path: Path, clock: FrozenClock, settings: dict[str, str], status: str
) -> None:
    """Step 4 of docs/restore.md; a run that had many dispatches since is given up without it."""
    queue = Queue()
    with opened(tmp_path, "runs.db", clock, queue, **settings) as engine:
        run_id = begin(engine)
        queue.waiting.clear()
        queue.of_before = 12

        run = swept_until_over(engine, clock, queue, run_id)

    assert (run.dead_letter_reason or run.status).value == status
