"""Queues and buses of tests that stand for those of the cloud, which all processes see."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.domain.effect import Task
from leasehold.domain.event_message import EventMessage


class SeenByAll(InProcessTasks):
    """What is not in it is lost: no other process has another one."""

    def exists(self, task: Task) -> bool:
        return super().exists(task) is True

    def lose(self) -> None:
        """Lose all that waits, as a queue does that is purged."""
        self._heap.clear()
        self._names.clear()


class CreatedTasks:
    """A task queue that keeps what it gets, in order, and delivers nothing."""

    def __init__(self) -> None:
        self.created: list[Task] = []

    def create(self, task: Task) -> None:
        self.created.append(task)

    def exists(self, task: Task) -> bool:
        return task in self.created


class Bus:
    """An event bus that keeps what it gets, one list a call."""

    def __init__(self) -> None:
        self.published: list[list[EventMessage]] = []

    def publish(self, messages: Sequence[EventMessage]) -> None:
        self.published.append(list(messages))
