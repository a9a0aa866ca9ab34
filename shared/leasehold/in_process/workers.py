"""The threads that run steps, and a start that gives an idle one of them its lease at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from leasehold.domain.change import Change
from leasehold.domain.effect import Task, dispatch_task
from leasehold.domain.retry import QUEUE_BACKOFF
from leasehold.errors import LeaseholdError
from leasehold.ports.documents import Committed
from leasehold.ports.task_queue import PulledTaskQueue
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step, has_lease, run_steps
from leasehold.services.start_run import StartRequest, begin, start_run

_LOG: Final = logging.getLogger("leasehold.in_process")


class Workers:
    """Runs what is due in a queue, until the queue is closed.

    Args:
        engine: returns the parts, as they are then.
        queue: where the tasks wait; that of the engine.
        count: how many steps run at once.

    Attributes:
        threads: one a worker; not started yet.
    """

    def __init__(self, engine: Callable[[], Engine], queue: PulledTaskQueue, count: int) -> None:
        self._engine = engine
        self._queue = queue
        self._begun: dict[str, Committed[Change]] = {}  # by task: runs that have a worker's lease
        self.threads: Sequence[threading.Thread] = [
            threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
            for number in range(count)
        ]

    def begin(self, request: StartRequest) -> Change:
        """Start a run; where a worker is idle, it gets the first lease in the same commit."""
        engine = self._engine()
        if not self._queue.reserve_worker():
            return start_run(engine, request)
        task = None
        try:
            begun = begin(engine, request, eager=True)
            if has_lease(begun.answer):
                task = dispatch_task(begun.answer.manifest)
                self._begun[task.name] = begun
        finally:
            self._queue.end_reservation(task)
        return begun.answer if task else engine.publish_or_leave(begun.answer)

    def _work(self) -> None:
        """Run tasks until the queue closes; what a step owes is exchanged for the next task."""
        owed = _OwedTasks(self._queue)
        engine = replace(self._engine(), tasks=owed)
        done: Task | None = None
        failures = 0
        while task := self._queue.exchange(done, owed.drain()):
            done = task
            try:
                if begun := self._begun.pop(task.name, None):
                    run_steps(engine, begun)
                else:
                    execute_step(engine, Hint(task.run_id, task.generation))
                failures = 0
            except Exception as error:  # noqa: BLE001 - the thread must outlive any step
                failures += 1
                again = engine.clock.now() + QUEUE_BACKOFF.wait(failures)
                owed.create(replace(task, not_before=again))
                log = _LOG.warning if isinstance(error, LeaseholdError) else _LOG.exception
                log("run %s could not be worked on, again at %s: %s", task.run_id, again, error)


class _OwedTasks:
    """A task queue that only notes: what one step owes, until its worker exchanges it.

    Args:
        queue: gets at once what another thread owes: whoever ends an attempt that hangs does not
            wait for its worker.
    """

    def __init__(self, queue: PulledTaskQueue) -> None:
        self._queue = queue
        self._worker = threading.get_ident()
        self._tasks: list[Task] = []

    def create(self, task: Task) -> None:
        """Note the task."""
        if threading.get_ident() == self._worker:
            self._tasks.append(task)
        else:
            self._queue.create(task)

    def exists(self, task: Task) -> bool | None:
        """Return True if the task is noted; None: it may wait elsewhere."""
        return True if task in self._tasks else self._queue.exists(task)

    def drain(self) -> list[Task]:
        """Return what was noted, and forget it."""
        tasks, self._tasks = self._tasks, []
        return tasks
