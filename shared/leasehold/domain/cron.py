"""The times of a cron expression, in the local time of a zone: each local time once.

Five fields: minute, hour, day of the month, month, day of the week; `*`, lists, ranges, steps and
English names. As in every cron, a day fits either of both day fields where neither is `*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from leasehold.frozen import dataclass

_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
#: 29 February comes after 8 years at the latest, and on one day of the week after 40.
_MAX_DAYS_SEARCHED: Final = 41 * 366


class CronError(ValueError):
    """An expression that names no times; the message says why, in words that follow it."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression as it was read.

    Args:
        minutes: the minutes that fit; likewise the further fields. Sunday is 0.
        by_interval: whether it fits each hour: its times are then an interval of real time.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    by_interval: bool

    def after(self, at: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """Yield the times after a moment, in UTC, oldest first; it ends where no day fits.

        A local time that comes twice, as clocks go back, counts the first time. One that is left
        out, as they go forward, is due as much later as they go. Where each hour fits, no time is
        left out and each counts.

        Args:
            at: a moment, in UTC.
            zone: whose local time it is.
        """
        if self.by_interval:
            yield from self._by_interval(at, zone)
            return
        last = at
        begin = at.astimezone(zone).replace(tzinfo=None) - _DAY
        for local in self._local_times(begin):
            due = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
            if due > last:
                yield due
                last = due

    def _by_interval(self, at: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        due = at.replace(second=0, microsecond=0) + _MINUTE
        ends = at + _MAX_DAYS_SEARCHED * _DAY
        while due < ends:
            local = due.astimezone(zone)
            if not self._fits_day(local):
                due = (local.replace(hour=0, minute=0, fold=0) + _DAY).astimezone(UTC)
                continue
            if local.minute in self.minutes:
                yield due
                ends = due + _MAX_DAYS_SEARCHED * _DAY
            due += _MINUTE

    def _local_times(self, begin: datetime) -> Iterator[datetime]:
        day, barren = begin.replace(hour=0, minute=0, second=0, microsecond=0), 0
        while barren < _MAX_DAYS_SEARCHED:
            barren += 1
            if self._fits_day(day):
                barren = 0
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        yield day.replace(hour=hour, minute=minute)
            try:
                day += _DAY
            except OverflowError:
                return

    def _fits_day(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        of_month = self.days is None or day.day in self.days
        of_week = self.weekdays is None or (day.weekday() + 1) % 7 in self.weekdays
        if self.days is None or self.weekdays is None:
            return of_month and of_week
        return of_month or of_week


def parse_cron(text: str) -> Cron:
    """Return the expression as it is read, or raise CronError."""
    fields = text.split()
    if len(fields) != 5:  # noqa: PLR2004 - as the sentence says
        raise CronError(f"it has {len(fields)} fields, and a cron has 5")
    minute, hour, day, month, weekday = fields
    weekdays = _field(weekday, 0, 7, _DAYS)
    cron = Cron(
        minutes=_field(minute, 0, 59),
        hours=_field(hour, 0, 23),
        days=None if day == "*" else _field(day, 1, 31),
        months=_field(month, 1, 12, _MONTHS),
        weekdays=None if weekday == "*" else frozenset(one % 7 for one in weekdays),
        by_interval=hour == "*",
    )
    if next(cron.after(datetime(2024, 1, 1, tzinfo=UTC), ZoneInfo("UTC")), None) is None:
        raise CronError("it never fires: no such day comes")
    return cron


def _field(text: str, least: int, most: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isascii() and step.isdigit() and 0 < int(step) <= most):
            raise CronError(f"{part!r} has no step from 1 to {most}")
        first, dash, last = span.partition("-")
        if span == "*":
            low, high = least, 6 if names == _DAYS else most
        else:
            low = _number(first, least, most, names)
            high = _number(last, least, most, names) if dash else most if slash else low
        if low > high:
            raise CronError(f"{part!r} ends before it begins")
        found.update(range(low, high + 1, int(step) if slash else 1))
    return frozenset(found)


def _number(text: str, least: int, most: int, names: tuple[str, ...]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + (1 if names == _MONTHS else 0)
    if not (text.isascii() and text.isdigit()) or not least <= int(text[:4]) <= most:
        raise CronError(f"{text!r} is not from {least} to {most}")
    return int(text)
