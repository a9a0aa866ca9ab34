"""All queues of the double, for many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from leasehold.devserver.cloud_tasks.faults import Faults
from leasehold.devserver.cloud_tasks.queue import Queue, QueueSettings
from leasehold.devserver.cloud_tasks.request import (
    already_exists,
    existed_too_recently,
    not_found,
)
from leasehold.devserver.cloud_tasks.task import Attempt, DeliveryResult, HttpTask, TaskState
from leasehold.ports.clock import Clock

#: How long the name of a queue stays used up after the queue is deleted.
QUEUE_NAME_REUSE_AFTER: Final = timedelta(days=3)


class Queues:
    """Queues by their full names.

    Args:
        clock: says what is due.
        defaults: the settings of a queue that no one created.
        strict: refuse tasks for such queues, as the service does.

    A thread that reads or changes a queue holds `changed`, and notifies it when something may be
    due sooner. The methods whose docstrings say "held" leave that to the caller.
    """

    def __init__(self, clock: Clock, defaults: QueueSettings, *, strict: bool) -> None:
        self.changed = threading.Condition()  # its lock can be taken again
        self.faults = Faults()
        self._clock = clock
        self._defaults = defaults
        self._strict = strict
        self._queues: dict[str, Queue] = {}
        self._deleted: dict[str, datetime] = {}

    def now(self) -> datetime:
        """Return the time by which tasks are due."""
        return self._clock.now()

    def add(self, name: str, task: HttpTask) -> TaskState:
        """Add a task to a queue, with the fault that is ordered for it."""
        with self.changed:
            queue = self._queue_for_task(name)
            now = self.now()
            queue.check_new_name(task.name, now)  # a task that is refused uses up no fault
            state = queue.add(task, now, self.faults.take(name, task.body))
            self.changed.notify()
            return state

    def task(self, name: str, task: str) -> TaskState:
        """Return a task of a queue."""
        with self.changed:
            state = self.queue(name).tasks.get(task)
            if state is None:
                raise not_found("task")
            return state

    def tasks(self, name: str) -> list[TaskState]:
        """Return all tasks of a queue, in the order of their names."""
        with self.changed:
            return [state for _, state in sorted(self.queue(name).tasks.items())]

    def delete(self, name: str, task: str) -> None:
        """Drop a task."""
        with self.changed:
            self.task(name, task)
            self.queue(name).delete(task, self.now())

    def queue(self, name: str) -> Queue:
        """Return the queue, or raise ApiError."""
        with self.changed:
            if name not in self._queues:
                raise not_found("queue")
            return self._queues[name]

    def all(self, parent: str) -> list[Queue]:
        """Return all queues of a location, in the order of their names."""
        with self.changed:
            names = sorted(name for name in self._queues if name.startswith(f"{parent}/queues/"))
            return [self._queues[name] for name in names]

    def create(self, name: str, settings: QueueSettings) -> Queue:
        """Create a queue; one that exists is refused."""
        with self.changed:
            if name in self._queues:
                raise already_exists("queue")
            return self._create(name, settings)

    def update(self, name: str, change: Callable[[QueueSettings], QueueSettings]) -> Queue:
        """Change the settings of a queue; one that is missing is created."""
        with self.changed:
            queue = self._queues.get(name)
            if queue is None:
                return self._create(name, change(QueueSettings()))
            queue.configure(change(queue.settings))
            self.changed.notify()
            return queue

    def remove(self, name: str) -> None:
        """Delete a queue with all its tasks; its name stays used up for a while."""
        with self.changed:
            self.purge(name)
            del self._queues[name]
            self._deleted[name] = self.now()

    def pause(self, name: str, *, paused: bool) -> Queue:
        """Start no more deliveries from a queue, or go on."""
        with self.changed:
            queue = self.queue(name)
            queue.paused = paused
            self.changed.notify()
            return queue

    def purge(self, name: str) -> Queue:
        """Drop all tasks of a queue."""
        with self.changed:
            queue = self.queue(name)
            queue.purge(self.now())
            return queue

    def start(self) -> Attempt | None:
        """Return a delivery that is to start now; `changed` is held."""
        now = self.now()
        for name, queue in self._queues.items():
            if attempt := queue.start(now):
                self._queues[name] = self._queues.pop(name)  # the others come first next time
                return attempt
        return None

    def finished(self, attempt: Attempt, result: DeliveryResult) -> None:
        """Record the result of a delivery; `changed` is held."""
        if queue := self._queues.get(attempt.queue):  # else it was deleted meanwhile
            queue.finished(attempt, result, self.now())

    def next_time(self) -> datetime | None:
        """Return when a delivery may start next, if that is known; `changed` is held."""
        times = (queue.next_time() for queue in self._queues.values())
        return min((time for time in times if time is not None), default=None)

    def _queue_for_task(self, name: str) -> Queue:
        if name in self._queues or self._strict:
            return self.queue(name)
        return self._create(name, self._defaults)

    def _create(self, name: str, settings: QueueSettings) -> Queue:
        deleted = self._deleted.get(name)
        if deleted is not None and self.now() < deleted + QUEUE_NAME_REUSE_AFTER:
            raise existed_too_recently("queue")
        self._queues[name] = Queue(name, settings, self.now(), self.faults.fired)
        return self._queues[name]
