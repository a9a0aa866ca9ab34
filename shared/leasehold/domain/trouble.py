"""The troubles of a run that its status does not tell: it says that it moves, but does it?"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime

from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.domain.stored import Stored


class Trouble(StrEnum):
    """One of them; a run may have several."""

    RETRYING = "retrying"  # its last attempt failed, and the next one is to come
    SILENT = "silent"  # its lease is over: its worker was not heard of for that long
    OVERDUE = "overdue"  # its alarm is past by more than the grace, and no sweep has attended to it
    ANNOUNCEMENT = "announcement"  # its announcement is due, or was given up


#: The paths of what `TroubleFacts` has.
TROUBLE_PATHS: Final = (
    "status",
    "paused",
    "cancelled",
    "deadLettered",
    "alarmAt",
    "position.lease.expiresAt",
)


class _Lease(Stored):
    expires_at: AwareDatetime


class _Position(Stored):
    lease: _Lease | None = None


class TroubleFacts(Stored):
    """What of a manifest tells its troubles; fields mean what they mean there."""

    status: RunStatus
    paused: bool = False
    cancelled: bool = False
    dead_lettered: bool = False
    alarm_at: AwareDatetime | None = None
    position: _Position = _Position()


def troubles_of(
    run: Manifest | TroubleFacts, now: datetime, grace: timedelta
) -> tuple[Trouble, ...]:
    """Return the troubles that the run itself tells; its deliveries tell of its announcement."""
    if run.status is RunStatus.COMPLETED or run.cancelled or run.dead_lettered:
        return ()
    lease = run.position.lease
    holds = {
        Trouble.RETRYING: run.status is RunStatus.ERROR and not run.paused,
        Trouble.SILENT: lease is not None and lease.expires_at <= now,
        Trouble.OVERDUE: run.alarm_at is not None and run.alarm_at + grace < now,
    }
    return tuple(trouble for trouble, is_so in holds.items() if is_so)
