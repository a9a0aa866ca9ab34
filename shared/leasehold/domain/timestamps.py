"""A moment as people write it: a time, a date, or how long ago or ahead."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from leasehold.domain.manifest import Manifest
from leasehold.domain.stored import replace
from leasehold.frozen import dataclass

#: What may be written, in words.
TIME_OR_DATE: Final = (
    "a time with its zone such as 2026-11-22T06:00:00Z, or a date such as 2026-11-22 (from 00:00 "
    "UTC)"
)
MOMENT_AHEAD: Final = f"how long from now, such as 90s, 15m, 2h, 3d or 4w, {TIME_OR_DATE}"
MOMENT: Final = f"an age such as 90s, 15m, 2h, 3d or 4w, {TIME_OR_DATE}"

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)", re.ASCII
)
_SPAN: Final = re.compile(r"(?P<count>\d{1,6})(?P<unit>[smhdw])", re.ASCII)
_NONE: Final = "it names no moment"
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def time_or_date(text: str) -> datetime:
    """Return the moment that a time or a date names, in UTC; ValueError for any other text."""
    if _DATE.fullmatch(text):
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    if not _TIME.fullmatch(text):
        raise ValueError(_NONE)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError:  # the first or the last hours that a calendar has, elsewhere
        raise ValueError(_NONE) from None


def moment_text(at: datetime) -> str:
    """Return the text that names a moment, as `time_or_date` reads it."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def stamp(at: datetime) -> str:
    """Return the time as sentences have it: to the second."""
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def moment_of(text: str, now: datetime, *, ahead: bool = False) -> datetime:
    """Return the moment that a text names; ValueError for one that names none.

    Args:
        text: a time, a date, or a span such as `2h`.
        now: what a span counts from.
        ahead: a span counts forward; else it is an age.
    """
    by = span_of(text)
    if by is None:
        return time_or_date(text)
    try:
        return now + by if ahead else now - by
    except OverflowError:
        raise ValueError(_NONE) from None


def span_of(text: str) -> timedelta | None:
    """Return the span that a text such as `2h` names; None: it names none."""
    span = _SPAN.fullmatch(text)
    return None if span is None else timedelta(**{_UNITS[span["unit"]]: int(span["count"])})


def time_of(value: object) -> datetime | None:
    """Return a time as a store has it, which a person may have edited."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else None
    try:
        return time_or_date(value) if isinstance(value, str) else None
    except ValueError:
        return None


# A step of the clock that a store's time goes by: it was set, or its machine slept.
#
# What was written before it has times of the old clock. A lease of then would be over at once,
# and a wait would last until the clock has caught up, though nothing of either is true.


#: Clocks may differ by this.
SKEW: Final = timedelta(minutes=5)

_A_MOMENT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ClockStep:
    """One step.

    Args:
        by: how far the clock went ahead, beyond the seconds that passed; back: negative.
        since: the first time that the clock can have shown after it.
        noticed_at: when it was noticed, in monotonic seconds.
    """

    by: timedelta
    since: datetime
    noticed_at: float


def is_ahead(at: datetime, now: datetime) -> bool:
    """Return whether a time that was now once is too far ahead: the clock was set back since."""
    return at > now + SKEW


def after_step(manifest: Manifest, now: datetime, step: ClockStep) -> Manifest:
    """Return the run with its lease by the clock as it is now; itself, where that is so already.

    The lease runs on as if its worker was heard of now. How far the clock went is not asked: two
    processes may have seen different steps of it, and each would move the lease by its own.
    """
    lease = manifest.position.lease
    if lease is None:
        return manifest
    latest = max(manifest.position.heartbeat_at or lease.acquired_at, lease.acquired_at)
    if latest >= step.since if step.by > timedelta() else latest <= now + _A_MOMENT:
        return manifest
    by = now - latest
    moved = replace(
        lease,
        acquired_at=lease.acquired_at + by,
        expires_at=lease.expires_at + by,
        max_expires_at=lease.max_expires_at + by,
    )
    return replace(manifest, position=replace(manifest.position, lease=moved, heartbeat_at=now))
