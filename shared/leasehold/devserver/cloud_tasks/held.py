"""What a queue remembers: the tasks that it has, and the names of those that it had."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from leasehold.devserver.cloud_tasks.faults import Fault, OrderedFault
from leasehold.devserver.cloud_tasks.tasks import HttpTask

#: How long a name stays used up after its task is gone.
NAME_REST: Final = timedelta(hours=24)


@dataclass(slots=True, eq=False)
class HeldTask:
    """A task that the queue has: it waits, or its answer is waited for.

    Args:
        place: its place in the order of waiting; None: it is being delivered.
        eta: when it is or was due by its schedule.
        fault: what is still to be done to it.
    """

    task: HttpTask
    number: int
    created: datetime
    eta: datetime
    fault: OrderedFault | None
    place: int | None = None
    attempts: int = 0
    answers: int = 0
    executions: int = 0
    first_attempt: datetime | None = None
    last_attempt: datetime | None = None
    previous: int | None = None

    def spends(self, kind: Fault) -> bool:
        """Return whether this fault is to be done now; it is done once."""
        if self.fault is None or self.fault.kind is not kind:
            return False
        self.fault = None
        return True


class UsedNames:
    """Names that no new task may have."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}  # in the order of their times

    def add(self, name: str, now: datetime) -> None:
        """Remember the name of a task that is gone now."""
        self._since[name] = now

    def has(self, name: str, now: datetime) -> bool:
        """Return whether the name is still used up."""
        while self._since and next(iter(self._since.values())) + NAME_REST <= now:
            del self._since[next(iter(self._since))]
        return name in self._since
