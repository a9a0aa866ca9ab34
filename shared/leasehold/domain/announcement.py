"""Announcements: messages to people about the end or the block of a run."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime

from leasehold.domain.stored import Stored, Text


class AnnouncedEvent(StrEnum):
    """What is announced: a run has ended, or waits for a person."""

    RUN_COMPLETED = "run_completed"
    RUN_BLOCKED = "run_blocked"
    RUN_DEAD_LETTERED = "run_dead_lettered"
    RUN_CANCELLED = "run_cancelled"


class Priority(StrEnum):
    """How much an announcement matters to its receivers."""

    HIGH = "high"  # a person has to do something
    NORMAL = "normal"


#: Announcements that a person has to act on.
URGENT: Final = frozenset({AnnouncedEvent.RUN_BLOCKED, AnnouncedEvent.RUN_DEAD_LETTERED})


class Announcement(Stored):
    """The last announcement of a run, as its manifest keeps it.

    `occurrence` tells announcements of one run from each other: the fencing token of the run when
    it came to that, and `.2`, `.3` behind it where no worker had the run in between. `channels` are
    those that were owed it: a record in `deliveries` for each, of the same commit. `detail` is what
    the run itself does not say: who cancelled it, and why. `pending`: the process that ended the
    run had no catalog, so the next writer with a catalog records the deliveries.
    """

    occurrence: Text
    event: AnnouncedEvent | Text
    at: AwareDatetime
    channels: tuple[Text, ...]
    detail: Text | None = None
    pending: bool = False


def next_occurrence(before: Announcement | None, fencing_token: int) -> str:
    """Return the occurrence of an announcement: one that the run did not have before."""
    token, _, number = ("" if before is None else before.occurrence).partition(".")
    if token != str(fencing_token):
        return str(fencing_token)
    return f"{token}.{int(number) + 1 if number.isdecimal() else 2}"
