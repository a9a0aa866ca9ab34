"""The task queue port: where the next attempt of a step is announced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from leasehold.domain.effect import Task


class TaskQueue(Protocol):
    """Delivers each task to `execute_step`, at least once, not before its time."""

    def create(self, task: Task) -> None:
        """Take the task; one that has the name of one that `exists` is dropped silently.

        A queue may remember names for longer than that.

        Raises:
            StoreUnavailableError: the queue did not take it. Retryable.
        """
        ...

    def exists(self, task: Task) -> bool | None:
        """Return whether the task waits in its queue, or is being delivered.

        None where it cannot be known, as in a queue that only one process sees: another one may
        have the task. Such a task is never lost; the next process that looks for it takes it.

        Raises:
            StoreUnavailableError: the queue did not answer. Retryable.
        """
        ...


class PulledTaskQueue(TaskQueue, Protocol):
    """A queue within this process: its workers ask for tasks, none is sent to them."""

    def exchange(self, done: Task | None, created: Iterable[Task]) -> Task | None:
        """Give one task back as delivered, take new ones, and wait for the next that is due.

        All in one, so that a worker goes on with what its own step owes without waking another.

        Returns:
            The next task; None once the queue is closed.
        """
        ...

    def reserve_worker(self) -> bool:
        """Keep an idle worker for a task that is to come; return whether there is one."""
        ...

    def end_reservation(self, task: Task | None) -> None:
        """Give the reserved worker its task, whenever that is due; None: there is none for it."""
        ...

    def take_due(self) -> Task | None:
        """Return a task that is due now, or None, without waiting. It counts as delivered."""
        ...

    def close(self) -> None:
        """Send all threads that wait for a task away."""
        ...
