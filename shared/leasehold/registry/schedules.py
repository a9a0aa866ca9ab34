"""The schedule registry: pipelines that are started at the times of a clock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NoReturn, get_args
from zoneinfo import ZoneInfo

from leasehold.domain.cron import Cron, CronError, parse_cron
from leasehold.domain.json_text import canonical
from leasehold.domain.schedule import Times
from leasehold.errors import InvalidEntryError
from leasehold.frozen import dataclass
from leasehold.registry.registry import Registry

#: What becomes of a time at which the run of the time before is not over.
Overlap = Literal["skip", "buffer_one", "cancel_other", "allow"]

_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,62}")
_MAX_CATCH_UP: Final = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class ScheduleEntry(Times):
    """A pipeline that is started at the times of a cron expression, each time once.

    Args:
        name: what runs, lists and commands name it by; a new name is a new schedule.
        pipeline: what is started.
        cron: five fields: minute, hour, day of the month, month, day of the week.
        tz: whose local time that is, as `Europe/Zurich`.
        input: what each run is started with; JSON values that fit the first step.
        overlap: where the run of the time before is not over: "skip" leaves the time out,
            "buffer_one" starts one run once that is over, "cancel_other" cancels that run, and
            "allow" starts beside it.
        catch_up: a time that no process attended to is made up for so much later, at most 31 days;
            later it is recorded as missed.

    Raises:
        InvalidEntryError: a field has a value that cannot be used, such as a cron that never fires.
    """

    name: str
    pipeline: str = field(kw_only=True)
    cron: str = field(kw_only=True)
    tz: str = field(default="UTC", kw_only=True)
    input: Any = field(default=None, kw_only=True)
    overlap: Overlap = field(default="skip", kw_only=True)
    catch_up: timedelta = field(default=timedelta(hours=1), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _NAME.fullmatch(self.name) is None:
            self._refuse("name", self.name, "a letter, then up to 62 of a-z A-Z 0-9 _ -")
        if not isinstance(self.pipeline, str) or not self.pipeline:
            self._refuse("pipeline", self.pipeline, "the name of a pipeline")
        try:
            zone_of(self.tz)
        except (ValueError, TypeError, OSError):
            self._refuse("tz", self.tz, "a time zone, such as 'Europe/Zurich' or 'UTC'")
        try:
            parse_cron(self.cron)
        except (CronError, AttributeError) as error:
            allowed = f"a cron such as '0 6 * * *' ({error})"
            self._refuse("cron", self.cron, allowed)
        if self.overlap not in get_args(Overlap):
            self._refuse("overlap", self.overlap, ", ".join(get_args(Overlap)))
        is_span = isinstance(self.catch_up, timedelta)
        if not is_span or not timedelta() <= self.catch_up <= _MAX_CATCH_UP:
            self._refuse("catch_up", self.catch_up, "a timedelta from 0 to 31 days")
        try:
            canonical(self.input)
        except (TypeError, ValueError):
            self._refuse("input", type(self.input).__name__, "JSON values")

    @property
    def key(self) -> str:
        """The name the row is found by."""
        return self.name

    @property
    def parsed(self) -> Cron:
        """The expression as it is read."""
        return parse_cron(self.cron)

    def after(self, at: datetime) -> Iterator[datetime]:
        """Yield its times after a moment, in UTC."""
        return self.parsed.after(at, zone_of(self.tz))

    def _refuse(self, field: str, value: object, allowed: str) -> NoReturn:
        raise InvalidEntryError(
            registry="schedules", key=str(self.name), field=field, value=value, allowed=allowed
        )


def zone_of(name: str) -> ZoneInfo:
    """Return the zone of a name; ValueError, TypeError or OSError for any other."""
    try:
        return ZoneInfo(name)
    except KeyError as error:  # ZoneInfoNotFoundError
        raise ValueError(str(error)) from None


#: The registry of a catalog without schedules.
NO_SCHEDULES: Final[Registry[ScheduleEntry]] = Registry("schedules", [])


def schedule_problems(
    schedules: Registry[ScheduleEntry], pipelines: Registry[Any]
) -> Iterator[InvalidEntryError]:
    """Yield the schedules of pipelines that are not there."""
    known = "pipelines of the catalog: " + ", ".join(pipelines.keys())
    for one in schedules:
        if one.pipeline not in pipelines:
            yield InvalidEntryError(
                registry="schedules",
                key=one.name,
                field="pipeline",
                value=one.pipeline,
                allowed=known,
            )
