"""The archive of an ended run: its work after the announcements, and its waits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from pydantic import AwareDatetime

from leasehold.domain.retry import doubling
from leasehold.domain.stored import Stored, replace

#: The longest wait before the sweep tries an archive again.
MAX_ARCHIVE_WAIT: Final = timedelta(hours=1)

#: So long after a worker was last heard of it may still write a temporary file.
SILENT_FOR: Final = timedelta(hours=1)


class OwedArchive(Stored):
    """The archive that an ended run still owes; a run that is archived has none.

    `tries` counts those of the sweep; `failed` names the steps that failed the last time.
    """

    ended_at: AwareDatetime
    tries: int = 0
    failed: tuple[str, ...] = ()
    not_before: AwareDatetime | None = None  # when the sweep tries again; None: at the grace


def tried_by_sweep(archive: OwedArchive, now: datetime, grace: timedelta) -> OwedArchive:
    """Return the archive while the sweep tries it: the next try comes after twice the wait."""
    tries = archive.tries + 1
    wait = doubling(grace, longest_wait(grace)).wait(tries + 1)
    return replace(archive, tries=tries, not_before=now + wait)


def longest_wait(grace: timedelta) -> timedelta:
    """Return how far ahead the next try may be, after the run was last written."""
    return max(grace, MAX_ARCHIVE_WAIT)
