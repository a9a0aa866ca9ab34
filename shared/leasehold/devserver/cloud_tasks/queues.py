"""All queues of the double, for many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from leasehold.devserver.cloud_tasks.faults import Faults
from leasehold.devserver.cloud_tasks.held import HeldTask
from leasehold.devserver.cloud_tasks.limits import QueueSettings
from leasehold.devserver.cloud_tasks.queue import Queue
from leasehold.devserver.cloud_tasks.refusals import exists, missing
from leasehold.devserver.cloud_tasks.tasks import Answer, Attempt, HttpTask
from leasehold.ports.clock import Clock


class Queues:
    """Queues by their full names.

    Args:
        clock: tells what is due.
        defaults: the settings of a queue that nobody created.
        strict: refuse tasks for such queues, as the service does.

    Whoever reads or changes a queue holds `changed`, and notifies it when something may be due
    sooner for it. The methods that say "held" in their docstrings leave that to the caller.
    """

    def __init__(self, clock: Clock, defaults: QueueSettings, *, strict: bool) -> None:
        self.changed = threading.Condition()  # its lock can be taken again
        self.faults = Faults()
        self._clock = clock
        self._defaults = defaults
        self._strict = strict
        self._queues: dict[str, Queue] = {}

    def now(self) -> datetime:
        """Return the time by which tasks are due."""
        return self._clock.now()

    def add(self, name: str, task: HttpTask) -> HeldTask:
        """Take a task for a queue, with the fault that is ordered for it."""
        with self.changed:
            queue = self._open(name)
            now = self.now()
            queue.refuse_again(task.name, now)  # a task that is refused uses no fault up
            held = queue.add(task, now, self.faults.take(name, task))
            self.changed.notify()
            return held

    def task(self, name: str, task: str) -> HeldTask:
        """Return a task of a queue."""
        with self.changed:
            return self._task(name, task)

    def tasks(self, name: str) -> list[HeldTask]:
        """Return all tasks of a queue, in the order of their names."""
        with self.changed:
            return [held for _, held in sorted(self.queue(name).tasks.items())]

    def delete(self, name: str, task: str) -> None:
        """Drop a task."""
        with self.changed:
            self._task(name, task)
            self.queue(name).delete(task, self.now())

    def queue(self, name: str) -> Queue:
        """Return the queue, or raise RefusedError."""
        with self.changed:
            if name not in self._queues:
                raise missing("queue")
            return self._queues[name]

    def all(self, parent: str) -> list[Queue]:
        """Return all queues of a location, in the order of their names."""
        with self.changed:
            names = sorted(name for name in self._queues if name.startswith(f"{parent}/queues/"))
            return [self._queues[name] for name in names]

    def create(self, name: str, settings: QueueSettings) -> Queue:
        """Make a queue; one that is there is refused."""
        with self.changed:
            if name in self._queues:
                raise exists("queue")
            return self._make(name, settings)

    def update(self, name: str, change: Callable[[QueueSettings], QueueSettings]) -> Queue:
        """Change the settings of a queue; one that is missing is made."""
        with self.changed:
            queue = self._queues.get(name)
            if queue is None:
                return self._make(name, change(QueueSettings()))
            queue.configure(change(queue.settings))
            self.changed.notify()
            return queue

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
                self._queues[name] = self._queues.pop(name)  # the others are asked first next time
                return attempt
        return None

    def finished(self, attempt: Attempt, answer: Answer) -> None:
        """Count an answer; `changed` is held."""
        self._queues[attempt.queue].finished(attempt, answer, self.now())

    def next_time(self) -> datetime | None:
        """Return when a delivery may start next, if that is known; `changed` is held."""
        times = (queue.next_time() for queue in self._queues.values())
        return min((time for time in times if time is not None), default=None)

    def _open(self, name: str) -> Queue:
        if name in self._queues or self._strict:
            return self.queue(name)
        return self._make(name, self._defaults)

    def _make(self, name: str, settings: QueueSettings) -> Queue:
        self._queues[name] = Queue(name, settings, self.now(), self.faults.fired)
        return self._queues[name]

    def _task(self, name: str, task: str) -> HeldTask:
        held = self.queue(name).tasks.get(task)
        if held is None:
            raise missing("task")
        return held
