"""The task queue port inside one process. It keeps nothing: the manifests are the outbox.

Several processes may work on one store, each with its own queue, so none of them can call a
task lost that it does not have.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from leasehold.domain.effect import Task
from leasehold.ports.clock import Clock

#: A time of day that jumps, or a machine that slept, is noticed after this long at most.
_MAX_SLEEP_S: Final = 60.0

#: When a task is due, its place among those of the same time, and the task.
_Entry = tuple[float, int, Task]


class InProcessTasks:
    """Tasks by their time, handed to the threads that ask for them.

    Args:
        clock: decides which tasks are due.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._heap: list[_Entry] = []
        self._names: set[str] = set()  # waiting or being delivered
        self._order = itertools.count()
        self._idle = 0
        self._reserved = 0  # of the idle workers
        self._for_reserved: deque[Task] = deque()
        self._closed = False

    def create(self, task: Task) -> None:
        """Take the task; one whose name is known already is dropped."""
        with self._changed:
            self._push(task)
            if self._idle:
                self._changed.notify()

    def exists(self, task: Task) -> bool | None:
        """Return True if the task waits or is being delivered; None: another queue may have it."""
        return True if task.name in self._names else None

    def exchange(self, done: Task | None, created: Iterable[Task]) -> Task | None:
        """Mark one task as delivered, take new ones, and wait for the next that is due.

        All in one, so that a worker continues with what its own step owes without waking another.

        Returns:
            The next task; None once the queue is closed.
        """
        with self._changed:
            if done is not None:
                self._names.discard(done.name)
            for task in created:
                self._push(task)
            while True:
                if self._closed and not (self._reserved or self._for_reserved):
                    return None
                if following := self._next():
                    if self._heap and self._idle:  # another thread has to watch the time now
                        self._changed.notify()
                    return following
                self._wait(self._heap if self._is_free else ())

    def reserve_worker(self) -> bool:
        """Keep an idle worker for a task that is to come; return whether there is one."""
        with self._changed:
            waiting = self._reserved + len(self._heap) + len(self._for_reserved)
            if self._closed or waiting >= self._idle:
                return False
            self._reserved += 1
            return True

    def end_reservation(self, task: Task | None) -> None:
        """Give the reserved worker its task, whenever that is due; None: there is none for it."""
        with self._changed:
            self._reserved -= 1
            if task is not None:
                self._names.add(task.name)
                self._for_reserved.append(task)
            if self._closed:
                self._changed.notify_all()
            else:
                self._changed.notify()

    def take_due(self) -> Task | None:
        """Return a task that is due now, or None, without waiting. It counts as delivered."""
        with self._changed:
            if due := self._pop_due():
                self._names.discard(due.name)
            return due

    def close(self) -> None:
        """Release all threads that wait for a task, with none."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _push(self, task: Task) -> None:
        if task.name not in self._names:
            self._names.add(task.name)
            entry = (task.not_before.timestamp(), next(self._order), task)
            heapq.heappush(self._heap, entry)

    @property
    def _is_free(self) -> bool:
        """Whether the thread that looks is not needed for a run that is being started."""
        return not self._closed and self._idle >= self._reserved

    def _next(self) -> Task | None:
        if self._for_reserved:  # also once it is closed: its run has begun
            return self._for_reserved.popleft()
        return self._pop_due() if self._is_free else None

    def _pop_due(self) -> Task | None:
        if self._heap and self._heap[0][0] <= self._clock.now().timestamp():
            return heapq.heappop(self._heap)[2]
        return None

    def _wait(self, tasks: Sequence[_Entry]) -> None:
        timeout = None
        if tasks:
            timeout = max(0.0, tasks[0][0] - self._clock.now().timestamp())
            timeout = min(timeout, _MAX_SLEEP_S)
        self._idle += 1
        try:
            self._changed.wait(timeout)
        finally:
            self._idle -= 1


class UndeliveredTasks(InProcessTasks):
    """For a command that delivers nothing: another process may have the queue, or none has."""

    def create(self, task: Task) -> None:
        """Leave the task to the next process that has a queue."""

    def exists(self, task: Task) -> None:
        """Return None: it cannot be known here."""
