"""Slots: who holds a limit, and who is next.

A slot is a document (`slots/{key}-{number}`) that names a run and its lease. It counts only while
that run has that lease: a worker that died holds none, and one that comes back frees none. Who has
to wait has no lease, and stands in a line: an index over the runs that wait, by their priority,
then by the other limits that they share, then by age.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime

from leasehold.domain.limit import name_of, words_of
from leasehold.domain.stored import Ref, Stored

#: A run that waits is looked at after this, then after twice the time, up to the longest: a worker
#: that was killed may have called no run.
FIRST_SLOT_LOOK: Final = timedelta(minutes=1)
MAX_SLOT_LOOK: Final = timedelta(minutes=5)


class Priority(StrEnum):
    """The class of a run: those of a higher one are called before all of a lower one."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


_CLASSES: Final = tuple(Priority)
_LAST: Final = "\U0010ffff"


class SlotWait(Stored):
    """The wait of a step for a limit, from its first try on.

    It is kept once the run is called, so that one that comes too late waits on by its first age.
    """

    limit: str  # as the entry of the step has its key
    key: str
    rate: bool = False  # whether it waits for its turn in a minute; else for a slot
    most: int
    group: str = ""  # of the runs that share its other limits
    since: AwareDatetime
    look_at: AwareDatetime
    looks: int = 0
    called: bool = False  # it is dispatched, and waits in no line
    leads: bool = False  # at its turn it calls those that have theirs then
    slot: int | None = None  # the slot that was free when it was called

    @property
    def name(self) -> str:
        """The name of its line."""
        return name_of(self.key, is_rate=self.rate)

    @property
    def words(self) -> str:
        """The thing that it waits for, for people."""
        return f"{'its turn in' if self.rate else 'a slot of'} {self.words_of_limit}"

    @property
    def words_of_limit(self) -> str:
        """Its limit, for people."""
        return words_of(self.key, self.most, is_rate=self.rate)


class Slot(Stored):
    """A slot, and its last holder."""

    key: str
    run_id: str = ""  # empty: its holder gave it back
    lease_id: str = ""
    fencing_token: int = 0
    step: str = ""  # its type
    group: str = ""
    taken_at: AwareDatetime | None = None  # for the last time

    @property
    def used_at(self) -> datetime | None:
        """When it was taken the last time; None: that is not known."""
        return self.taken_at


def slot_ref(key: str, number: int) -> Ref:
    """Return the name of a slot's document."""
    return Ref("slots", f"{slots_of(key)}{number}")


def slots_of(key: str) -> str:
    """Return what the ids of all slots of a key begin with."""
    return f"{_hashed(key)}-"


def takeable(free: Sequence[int], most: int, lowered_to: int | None) -> Sequence[int]:
    """Return which of the free slots of a key may be taken.

    Of a limit that is lowered, those of the lower numbers; and for each holder of a higher one, a
    free one is left as it is. All leave the same ones, so that together they are never too many.

    Args:
        free: the numbers of all that are free, in order.
        most: how many slots there are.
        lowered_to: how many may be held now; None: all.
    """
    if lowered_to is None:
        return free
    below = [number for number in free if number < lowered_to]
    held_above = most - lowered_to - (len(free) - len(below))
    return below[held_above:]


def group_of(keys: list[str]) -> str:
    """Return the group of runs that share these further keys; empty: there are none."""
    return _hashed("\n".join(keys))[:8] if keys else ""


def line_of(priority: str | None, group: str, since: datetime) -> str:
    """Return the place of a run in the line: texts that sort as the runs are called."""
    age = since.astimezone(UTC).isoformat(timespec="microseconds")
    return f"{_class_of(priority)}|{group}|{age}"


def _class_of(priority: str | None) -> int:
    return _CLASSES.index(Priority(priority)) if priority in _CLASSES else 1


def is_ahead(line: str, priority: str | None) -> bool:
    """Return whether the place of a run that waits is ahead of a run that comes now."""
    return line[:1] <= str(_class_of(priority))


def just_behind(line: str) -> str:
    """Return the first place behind this one."""
    return f"{line} "


def behind_group(line: str, group: str) -> tuple[str, str]:
    """Return the places behind a group among those of the same class: from one, below another."""
    return f"{line[:1]}|{group}|{_LAST}", f"{line[:1]}|{_LAST}"


def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:24]
