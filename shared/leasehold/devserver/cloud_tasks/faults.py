"""Faults to order: what a queue may do to a task, done on purpose to the next that matches."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum, unique

from leasehold.frozen import dataclass


@unique
class Fault(StrEnum):
    """A fault of a task."""

    TWICE = "twice"  # delivered again, unchanged, after the response to the first delivery
    LATE = "late"  # delivered `seconds` after its time
    REORDERED = "reordered"  # after the next task that comes, or after `seconds`
    LOST = "lost"  # accepted, and never delivered; its name is used up
    OVERLAPPING = "overlapping"  # retried `seconds` after the first began, whose response is lost


@dataclass(frozen=True, slots=True)
class OrderedFault:
    """A fault that waits for its task.

    Args:
        queue: only for tasks of this queue, by its short name; None: any.
        containing: only for tasks whose body contains this text; empty: any.
        seconds: how late, or how soon the second delivery; see `Fault`.
    """

    kind: Fault
    queue: str | None
    containing: str
    seconds: float

    @property
    def delay(self) -> timedelta:
        """The seconds, as a time span."""
        return timedelta(seconds=self.seconds)

    def matches(self, queue: str, body: bytes) -> bool:
        """Return whether it is meant for a task of this queue with this body."""
        in_queue = self.queue in {None, queue.rpartition("/")[2]}
        return in_queue and self.containing.encode() in body


@dataclass(frozen=True, slots=True)
class FiredFault:
    """A fault that happened: to which task, and when."""

    kind: Fault
    queue: str
    task: str
    at: datetime


class Faults:
    """The faults that are ordered, and those that fired, each in order."""

    def __init__(self) -> None:
        self.ordered: list[OrderedFault] = []
        self.fired: list[FiredFault] = []

    def order(
        self,
        kind: Fault | str,
        *,
        count: int = 1,
        queue: str | None = None,
        containing: str = "",
        seconds: float | None = None,
    ) -> None:
        """Order a fault for each of the next `count` tasks that are created and match.

        One fault a task: the first that matches. `seconds` is 0 for overlapping, else 1 by default.
        """
        kind = Fault(kind)
        if seconds is None:
            seconds = 0.0 if kind is Fault.OVERLAPPING else 1.0
        self.ordered.extend([OrderedFault(kind, queue, containing, seconds)] * count)

    def take(self, queue: str, body: bytes) -> OrderedFault | None:
        """Return the first fault for a task, if there is one; it is used up."""
        for index, ordered in enumerate(self.ordered):
            if ordered.matches(queue, body):
                return self.ordered.pop(index)
        return None

    def clear(self) -> None:
        """Forget what is ordered and what fired."""
        self.ordered.clear()
        self.fired.clear()
