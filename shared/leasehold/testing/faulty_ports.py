"""The stores and the queue of an engine, with the faults that a test ordered in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from leasehold.domain.change import Change
from leasehold.domain.effect import Task
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref, Write
from leasehold.ports.documents import Committed, Documents
from leasehold.ports.task_queue import PulledTaskQueue
from leasehold.testing.faults import Faults

#: What a store that is away, and a process that is dead, can still do.
_ALWAYS: Final = frozenset({"close"})


class Reached:
    """A port whose every call may find that its store is away, or its own process dead.

    Args:
        inner: the port.
        check: raises what a call meets; or nothing.
    """

    def __init__(self, inner: Any, check: Callable[[], None]) -> None:
        self._inner = inner
        self._check = check

    def __getattr__(self, name: str) -> Any:
        """Return what the port has under that name; a call of it is checked first."""
        found = getattr(self._inner, name)
        if not callable(found) or name in _ALWAYS:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._check()
            return found(*given, **named)

        return call


class FaultyDocuments(Reached):
    """The documents port; each commit is told to the faults, before it and after it."""

    def __init__(self, inner: Documents, faults: Faults) -> None:
        super().__init__(inner, lambda: faults.check_reachable("store"))
        self._faults = faults

    def transact(
        self, ref: Ref, decide: DecideDocument[Answer], **options: Any
    ) -> Committed[Answer]:
        """Do as the store does, unless a fault was ordered for this commit."""

        def decided(stored: Document | None, now: datetime) -> Write[Answer]:
            write = decide(stored, now)
            if isinstance(write.answer, Change):
                self._faults.before_commit(write.answer)
            self._faults.before_write(ref, write.document)
            return write

        self._check()
        committed: Committed[Answer] = self._inner.transact(ref, decided, **options)
        if isinstance(committed.answer, Change):
            self._faults.after_commit(committed.answer)
        return committed


class FaultyTasks(Reached):
    """The queue; tasks may be lost on their way in, and come twice on their way out."""

    def __init__(self, inner: PulledTaskQueue, faults: Faults) -> None:
        super().__init__(inner, faults.check_alive)
        self._faults = faults
        self._once_more: deque[Task] = deque()
        self._lost: set[str] = set()  # a queue remembers names, also those of tasks it lost

    def create(self, task: Task) -> None:
        """Take the task, or lose it."""
        self._check()
        if not self._loses(task):
            self._inner.create(task)

    def exists(self, task: Task) -> bool | None:
        """Return whether it has the task; it knows what it lost, as a deployed queue does."""
        self._check()
        return False if task.name in self._lost else self._inner.exists(task)

    def exchange(self, done: Task | None, created: Iterable[Task]) -> Task | None:
        """Do as the queue does with the tasks that are not lost."""
        kept = [task for task in created if not self._loses(task)]
        following: Task | None = self._inner.exchange(done, kept)
        return following

    def take_due(self) -> Task | None:
        """Return a task that is due now; one that comes twice again, right after."""
        if self._once_more:
            return self._once_more.popleft()
        task: Task | None = self._inner.take_due()
        if task is not None and self._faults.repeats(task):
            self._once_more.append(task)
        return task

    def repeat(self, task: Task) -> None:
        """Take a task back whose delivery was not answered."""
        self._inner.create(task)

    def _loses(self, task: Task) -> bool:
        if task.name not in self._lost and self._faults.loses(task):
            self._lost.add(task.name)
        return task.name in self._lost
