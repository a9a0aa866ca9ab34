"""The state of a schedule: which of its times were decided, and how; one document each.

A time is decided before its run is started, in one write, so that two processes decide it once. The
start has the schedule and the time as its key, and is owed until it is recorded.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Final

from pydantic import AwareDatetime, ValidationError

from leasehold.domain.stored import (
    Document,
    Ref,
    Stored,
    StoredDocument,
    UnreadableDocument,
    replace,
)
from leasehold.errors import UnreadableScheduleError

#: How many records a schedule keeps, the newest.
MAX_TIMES_KEPT: Final = 50
_MAX_TIMES_MISSED: Final = 10_000


class Fate(StrEnum):
    """The outcome of a time of a schedule."""

    STARTING = "starting"
    STARTED = "started"
    SKIPPED = "skipped"
    MISSED = "missed"
    BUFFERED = "buffered"


class ScheduleLine(Stored):
    """A record: what became of a time, or of several that were missed in a row.

    Fields:
        id: of the order of a person; the same one orders one run, as long as the record is kept.
    """

    time: AwareDatetime
    fate: Fate
    at: AwareDatetime
    reason: str = ""
    run_id: str | None = None
    count: int = 1
    id: str | None = None


class ScheduleState(Stored):
    """A schedule as it is stored.

    Fields:
        decided: the last time that was decided; those after it are due.
        cron, tz: as they were then; where they change, no time of the past is due.
        starting: the time whose run is owed, and its `run_id` once it is known.
        last_run_id: the run that was started last, for the overlap.
    """

    name: str
    cron: str
    tz: str
    decided: AwareDatetime
    starting: AwareDatetime | None = None
    problem: str = ""
    buffered: AwareDatetime | None = None
    last_run_id: str | None = None
    paused: bool = False
    paused_by: str = ""
    paused_at: AwareDatetime | None = None
    why: str = ""
    lines: tuple[ScheduleLine, ...] = ()

    @property
    def is_ordered(self) -> bool:
        """Whether a person ordered the run that is owed: it begins beside whatever runs."""
        starts = (line for line in self.lines if line.fate is Fate.STARTING)
        return any(line.time == self.starting and bool(line.reason) for line in starts)


class Times(ABC):
    """A schedule of the catalog, as far as decisions need it."""

    name: str
    cron: str
    tz: str
    overlap: str
    catch_up: timedelta

    @abstractmethod
    def after(self, at: datetime) -> Iterator[datetime]:
        """Yield its times after a moment, in UTC."""


def schedule_ref(name: str) -> Ref:
    """Return where the state of a schedule is stored."""
    return Ref("schedules", name)


def state_of(name: str, document: Document) -> ScheduleState:
    """Return the state of a schedule that a document is, or raise UnreadableScheduleError."""
    if isinstance(document, UnreadableDocument):
        raise UnreadableScheduleError(schedule=name, problem=document.problem)
    if isinstance(document, StoredDocument) and isinstance(document.value, ScheduleState):
        return document.value
    try:
        state: ScheduleState = ScheduleState.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise UnreadableScheduleError(schedule=name, problem=problem) from None
    return state


def schedule_key(name: str, time: datetime) -> str:
    """Return the idempotency key of the run of a time."""
    return f"schedule:{name}:{time:%Y-%m-%dT%H:%M:%SZ}"


def run_id_of(key: str) -> str:
    """Return the id of the run that a start with this key makes."""
    return f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def began(entry: Times, now: datetime) -> ScheduleState:
    """Return the state of a schedule that is new: its times before now are not due."""
    return ScheduleState(name=entry.name, cron=entry.cron, tz=entry.tz, decided=now)


def decide(
    state: ScheduleState | None, entry: Times, now: datetime, *, is_live: bool
) -> ScheduleState:
    """Decide what becomes of the next time that is due; the same state: nothing is.

    At most one run is to be started by it: `starting` is the time of that.

    Args:
        state: as it is stored; None: the schedule is new.
        entry: the schedule as the catalog has it.
        now: the store's time.
        is_live: whether the run that was started last is not over.
    """
    if state is None:
        return began(entry, now)
    if (state.cron, state.tz) != (entry.cron, entry.tz):
        state = _with_other_times(state, entry, now)
    if state.starting is not None:
        return state
    if state.buffered is not None and not is_live and not state.paused:
        return _starting(replace(state, buffered=None), state.buffered, now)
    due = _due(entry, state.decided, now)
    while due:
        missed = [time for time in due if time < now - entry.catch_up - _GRACE]
        if state.paused:
            reason = _paused_words(state)
            return _line(state, due[0], Fate.SKIPPED, now, reason, count=len(due), upto=due[-1])
        if missed:
            reason = f"no process attended to it within {entry.catch_up}"
            state = _line(
                state, missed[0], Fate.MISSED, now, reason, count=len(missed), upto=missed[-1]
            )
            due = due[len(missed) :]
            continue
        time = due.pop(0)
        state = replace(state, decided=time)
        if not is_live or entry.overlap in ("allow", "cancel_other"):
            return _starting(state, time, now)
        if entry.overlap == "buffer_one" and state.buffered is None:
            state = replace(state, buffered=time)
            state = _line(state, time, Fate.BUFFERED, now, _live_words(state))
        else:
            state = _line(state, time, Fate.SKIPPED, now, _live_words(state))
    return state


#: A time that is attended to so much later was not missed, whatever its catch_up.
_GRACE: Final = timedelta(minutes=2)


def next_look(state: ScheduleState, entry: Times) -> datetime | None:
    """Return when a process is to look at the schedule again; None: as soon as it can."""
    if state.starting is not None or state.buffered is not None:
        return None
    return next(iter(entry.after(state.decided)), None)


def recorded(state: ScheduleState, time: datetime, run_id: str, now: datetime) -> ScheduleState:
    """Record that the run of a time is started."""
    if state.starting != time:
        return state  # another process recorded it
    lines = tuple(
        replace(line, fate=Fate.STARTED, run_id=run_id, at=now)
        if line.time == time and line.fate is Fate.STARTING
        else line
        for line in state.lines
    )
    return replace(state, starting=None, problem="", last_run_id=run_id, lines=lines)


def failed(state: ScheduleState, time: datetime, problem: str) -> ScheduleState:
    """Note why the run of a time cannot be started yet; it is owed still."""
    if state.starting != time or state.problem == problem:
        return state
    return replace(state, problem=problem)


def dropped(state: ScheduleState, entry: Times, now: datetime) -> ScheduleState:
    """Give a start up that failed until the next time was due: that has its turn."""
    time = state.starting
    if time is None or not state.problem or not _due(entry, state.decided, now):
        return state
    lines = tuple(line for line in state.lines if (line.time, line.fate) != (time, Fate.STARTING))
    state = replace(state, starting=None, lines=lines)
    reason = f"it could not be started: {state.problem}"
    return replace(_line(state, time, Fate.MISSED, now, reason), problem="", decided=state.decided)


def removed(state: ScheduleState) -> ScheduleState:
    """Return a schedule that the catalog has no more, with what becomes of a time that is owed."""
    time = state.starting or state.buffered
    if time is None:
        return state
    problem = f"the catalog does not have it any more, so its time {time:%Y-%m-%d %H:%M}Z waits"
    return replace(state, problem=f"{problem} until it has it again")


def ordered(
    state: ScheduleState, time: datetime, now: datetime, *, reason: str, order_id: str | None = None
) -> ScheduleState:
    """Have a run started for a time that a person names, whatever runs; it is owed from now on."""
    return _starting(state, time, now, reason, order_id)


def begun(state: ScheduleState) -> list[ScheduleLine]:
    """Return the records of runs that are started, or owed."""
    return [line for line in state.lines if line.fate in (Fate.STARTING, Fate.STARTED)]


def free_second(state: ScheduleState, now: datetime) -> datetime:
    """Return a time for a run that is ordered now: no other one has it, and no cron does."""
    time, taken = now.replace(microsecond=0), {line.time for line in state.lines}
    while time in taken or not time.second:
        time += timedelta(seconds=1)
    return time


def _with_other_times(state: ScheduleState, entry: Times, now: datetime) -> ScheduleState:
    """Return a schedule that has changed: no time of the past is due, nor one that is buffered."""
    if state.buffered is not None:
        reason = "the schedule changed its times before this one began"
        state = _line(state, state.buffered, Fate.SKIPPED, now, reason)
    return replace(state, cron=entry.cron, tz=entry.tz, decided=now, buffered=None)


def _due(entry: Times, since: datetime, now: datetime) -> list[datetime]:
    found = []
    for time in takewhile(lambda one: one <= now, entry.after(since)):
        found.append(time)
        if len(found) >= _MAX_TIMES_MISSED:
            break
    return found


def _starting(
    state: ScheduleState,
    time: datetime,
    now: datetime,
    reason: str = "",
    order_id: str | None = None,
) -> ScheduleState:
    line = ScheduleLine(time=time, fate=Fate.STARTING, at=now, reason=reason, id=order_id)
    return replace(state, starting=time, problem="", lines=(*state.lines, line)[-MAX_TIMES_KEPT:])


def _line(
    state: ScheduleState,
    time: datetime,
    fate: Fate,
    now: datetime,
    reason: str,
    *,
    count: int = 1,
    upto: datetime | None = None,
) -> ScheduleState:
    line = ScheduleLine(time=time, fate=fate, at=now, reason=reason, count=count)
    decided = max(state.decided, upto or time)
    return replace(state, decided=decided, lines=(*state.lines, line)[-MAX_TIMES_KEPT:])


def _live_words(state: ScheduleState) -> str:
    return f"run {state.last_run_id} of the time before is not over"


def _paused_words(state: ScheduleState) -> str:
    by = f" by {state.paused_by}" if state.paused_by else ""
    return f"the schedule is paused{by}: {state.why}"
