"""Schedules: their times are decided once, and their runs started once, by any sweep.

A time is decided in one write of the schedule's document; the start has a key, and is owed until it
is recorded. So two sweeps, and a sweep after a kill, start the same run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from leasehold.domain.lifecycle import Operation
from leasehold.domain.notes import said
from leasehold.domain.schedule import (
    ScheduleLine,
    ScheduleState,
    began,
    begun,
    decide,
    dropped,
    failed,
    free_second,
    next_look,
    ordered,
    recorded,
    removed,
    run_id_of,
    schedule_key,
    schedule_ref,
    state_of,
)
from leasehold.domain.stored import Document, StoredDocument, Write, replace
from leasehold.errors import (
    IdempotencyKeyReusedError,
    InvalidRequestError,
    LeaseholdError,
    NotAllowedError,
    StoreUnavailableError,
    UnknownRunError,
    UnreadableScheduleError,
)
from leasehold.frozen import dataclass
from leasehold.ports.documents import Query
from leasehold.registry.schedules import ScheduleEntry
from leasehold.services.engine import Engine, find_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.request_bounds import MAX_REASON_CHARS
from leasehold.services.start_run import StartRequest, start_run

#: The most runs that one back-fill starts.
MAX_BACKFILL_RUNS: Final = 100
#: How many times of one schedule a sweep attends to.
_MAX_TIMES_PER_SWEEP: Final = 20
#: When a start that failed is tried again.
_START_RETRY: Final = timedelta(seconds=30)
#: So often a person's order first starts a run that is owed already: its process may be gone.
_MAX_START_TRIES: Final = 3
#: A process looks at a schedule so often at least: another one may have been killed after a person
#: ordered a run and before it was started.
_MAX_LOOK_EVERY: Final = timedelta(minutes=10)
_ALL: Final = Query("schedules", limit=1000)


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """A schedule: as the catalog has it, and as it is stored; either may be missing.

    Args:
        name: its name.
        entry: None: this catalog has none of that name, and nothing starts it.
        state: None: no sweep has seen it yet.
        next_at: its next time; None: there is none.
    """

    name: str
    entry: ScheduleEntry | None
    state: ScheduleState | None
    next_at: datetime | None


def attend_schedules(engine: Engine, is_over: Callable[[], bool]) -> list[str]:
    """Start the runs of all schedules that are due; return their ids.

    Args:
        engine: the parts.
        is_over: whether nothing more is to be begun.
    """
    started = []
    for entry in engine.catalog.schedules:
        look_at = engine.schedules.look_at.get(entry.name)
        if look_at is not None and engine.clock.now() < look_at:
            continue
        try:
            started += _attend_times(engine, entry, is_over)
        except Exception as error:  # noqa: BLE001 - one schedule must stop no other, and no run
            problem = error if isinstance(error, LeaseholdError) else repr(error)
            engine.listeners.log(f"schedule {entry.name} waits for the next sweep: {problem}")
    return started


def _attend_times(engine: Engine, entry: ScheduleEntry, is_over: Callable[[], bool]) -> list[str]:
    started: list[str] = []
    for _ in range(_MAX_TIMES_PER_SWEEP):
        run_id = None if is_over() else _attend(engine, entry)
        if run_id is None:
            break
        started.append(run_id)
    return started


def list_schedules(engine: Engine) -> Sequence[ScheduleReport]:
    """Return all schedules, of the catalog and of the store, by their names."""
    states = {}
    for found in engine.documents.query(_ALL):
        with contextlib.suppress(UnreadableScheduleError):  # a person edited it
            states[found.ref.id] = state_of(found.ref.id, found.document)
    names = sorted({*engine.catalog.schedules.keys(), *states})
    return [_report(engine, name, states.get(name)) for name in names]


def read_schedule(engine: Engine, name: str) -> ScheduleReport:
    """Return a schedule, or raise UnknownKeyError where neither catalog nor store has it."""
    found = engine.documents.get(schedule_ref(name)) if _is_name(name) else None
    if found is None:
        engine.catalog.schedules[name[:_MAX_NAME_CHARS]]
    return _report(engine, name, None if found is None else state_of(name, found.document))


def pause_schedule(engine: Engine, name: str, *, why: str, actor: str) -> ScheduleReport:
    """Have its times skipped, each with this reason, until it is resumed."""
    if not 0 < len(why) <= MAX_REASON_CHARS or not why.isprintable():
        allowed = f"1 to {MAX_REASON_CHARS} printable characters"
        raise InvalidRequestError(field="why", value=why[:MAX_REASON_CHARS], allowed=allowed)

    def paused(state: ScheduleState, now: datetime) -> ScheduleState:
        return replace(state, paused=True, paused_by=actor, paused_at=now, why=said(why))

    return _change(engine, name, paused)


def resume_schedule(engine: Engine, name: str) -> ScheduleReport:
    """Have its next time start a run again; times of the pause are recorded as skipped."""
    entry = engine.catalog.schedules[name]

    def resumed(state: ScheduleState, now: datetime) -> ScheduleState:
        if not state.paused:
            return state
        state = decide(state, entry, now, is_live=False)
        return replace(state, paused=False, paused_by="", paused_at=None, why="")

    return _change(engine, name, resumed)


def trigger_schedule(engine: Engine, name: str, *, actor: str, order_id: str | None = None) -> str:
    """Start its run now, beside its times and whatever runs; return the run's id.

    Args:
        engine: the parts.
        name: of the schedule.
        actor: who orders it.
        order_id: of the order: the same one is one run, however often it comes. None: a new one.

    Raises:
        InvalidRequestError: a run of it is being started; try again.
    """
    entry = engine.catalog.schedules[name]
    order_id = order_id or engine.clock.new_id()

    def find(state: ScheduleState) -> ScheduleLine | None:
        return next((line for line in begun(state) if line.id == order_id), None)

    def order(state: ScheduleState, now: datetime) -> ScheduleState:
        time = free_second(state, now)
        return ordered(state, time, now, reason=f"triggered by {actor}", order_id=order_id)

    return _order(engine, entry, find, order)


def backfill_schedule(
    engine: Engine, name: str, first: datetime, last: datetime, *, actor: str
) -> list[str]:
    """Start the runs of its times from `first` to `last`; of those that were started, the same.

    Returns:
        The ids of the runs, by their times.

    Raises:
        InvalidRequestError: it is no span of the past, or it has too many times, or none.
    """
    entry = engine.catalog.schedules[name]
    now = engine.clock.now()
    if not first <= last <= now:
        field, value = ("last", last) if last > now else ("first", first)
        allowed = "a span of the past: first, then last"
        raise InvalidRequestError(field=field, value=value.isoformat(), allowed=allowed)
    times: list[datetime] = []
    for time in entry.after(first - timedelta(microseconds=1)):
        if time > last or len(times) > MAX_BACKFILL_RUNS:
            break
        times.append(time)
    if not 0 < len(times) <= MAX_BACKFILL_RUNS:
        allowed = f"a span with 1 to {MAX_BACKFILL_RUNS} times"
        raise InvalidRequestError(field="last", value=last.isoformat(), allowed=allowed)

    def find(time: datetime, state: ScheduleState) -> ScheduleLine | None:
        return next((line for line in begun(state) if line.time == time), None)

    def order(time: datetime, state: ScheduleState, now: datetime) -> ScheduleState:
        return ordered(state, time, now, reason=f"back-filled by {actor}")

    return [_order(engine, entry, partial(find, time), partial(order, time)) for time in times]


_MAX_NAME_CHARS: Final = 63


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _MAX_NAME_CHARS and name.replace("-", "").replace("_", "").isalnum()


def _attend(engine: Engine, entry: ScheduleEntry) -> str | None:
    """Decide the next time that is due, and start its run; None: no run was started."""
    found = engine.documents.get(schedule_ref(entry.name))
    before = None if found is None else state_of(entry.name, found.document)
    last = None if before is None else before.last_run_id
    is_live = before is not None and _may_overlap(before, entry) and _is_live(engine, last)

    def settle(document: Document | None, now: datetime) -> Write[ScheduleState]:
        state = None if document is None else state_of(entry.name, document)
        if state is not None:
            state = dropped(state, entry, now)
        if state is not None and state.last_run_id != last:
            return Write(state)  # another process started a run meanwhile: look again
        decided = decide(state, entry, now, is_live=is_live)
        is_same = document is not None and decided == state_of(entry.name, document)
        return Write(decided, None if is_same else StoredDocument(decided))

    state = engine.documents.transact(schedule_ref(entry.name), settle).answer
    run_id = None
    if state.starting is not None:
        run_id = _start(engine, entry, state)
        if run_id is None:
            engine.schedules.look_at[entry.name] = engine.clock.now() + _START_RETRY
            return None
        state = replace(state, starting=None)
    look_at = next_look(state, entry)
    if look_at is None:
        engine.schedules.look_at.pop(entry.name, None)
    else:
        engine.schedules.look_at[entry.name] = min(look_at, engine.clock.now() + _MAX_LOOK_EVERY)
    return run_id


def _may_overlap(state: ScheduleState, entry: ScheduleEntry) -> bool:
    return state.last_run_id is not None and entry.overlap != "allow"


def _is_live(engine: Engine, run_id: str | None) -> bool:
    if run_id is None:
        return False
    try:
        return not find_run(engine, run_id).manifest.is_terminal
    except UnknownRunError:  # it was purged
        return False


def _start(engine: Engine, entry: ScheduleEntry, state: ScheduleState) -> str | None:
    """Start the run that is owed and record it; None: it cannot be started yet."""
    time = state.starting
    assert time is not None  # noqa: S101 - who calls has seen it
    key, last = schedule_key(entry.name, time), state.last_run_id
    cancels = entry.overlap == "cancel_other" and not state.is_ordered
    if cancels and last not in (None, run_id_of(key)):
        _cancel(engine, str(last), entry.name)
    labels = {"schedule": entry.name}
    try:
        request = StartRequest(entry.pipeline, entry.input, key, labels)
        run_id = start_run(engine, request).manifest.run_id
    except IdempotencyKeyReusedError:  # a deploy changed the input since it was started
        run_id = run_id_of(key)
    except StoreUnavailableError:
        raise
    except LeaseholdError as error:  # a wrong deploy: it is owed until that is put right
        _record(engine, entry.name, partial(_failed, time, str(error)))
        engine.listeners.log(f"schedule {entry.name} cannot start its run of {time}: {error}")
        return None
    _record(engine, entry.name, partial(_recorded, time, run_id))
    return run_id


def _recorded(time: datetime, run_id: str, state: ScheduleState, now: datetime) -> ScheduleState:
    return recorded(state, time, run_id, now)


def _failed(time: datetime, problem: str, state: ScheduleState, _: datetime) -> ScheduleState:
    return failed(state, time, problem)


def _cancel(engine: Engine, run_id: str, name: str) -> None:
    request = OperationRequest(
        Operation.CANCEL, actor=f"schedule {name}", reason="the next time is due (cancel_other)"
    )
    with contextlib.suppress(NotAllowedError, UnknownRunError):  # it is over
        operate(engine, run_id, request)


def _record(
    engine: Engine, name: str, change: Callable[[ScheduleState, datetime], ScheduleState]
) -> ScheduleState:
    def write(document: Document | None, now: datetime) -> Write[ScheduleState]:
        entry = engine.catalog.schedules.get(name)
        if document is None and entry is None:
            engine.catalog.schedules[name]
        before = state_of(name, document) if document is not None else began(entry, now)  # type: ignore[arg-type]
        after = change(before, now)
        is_same = document is not None and after == before
        return Write(after, None if is_same else StoredDocument(after))

    return engine.documents.transact(schedule_ref(name), write).answer


def _change(
    engine: Engine, name: str, change: Callable[[ScheduleState, datetime], ScheduleState]
) -> ScheduleReport:
    engine.catalog.schedules[name[:_MAX_NAME_CHARS]]
    state = _record(engine, name, change)
    return _report(engine, name, state)


def _order(
    engine: Engine,
    entry: ScheduleEntry,
    find: Callable[[ScheduleState], ScheduleLine | None],
    order: Callable[[ScheduleState, datetime], ScheduleState],
) -> str:
    """Have a run started that a person orders; return its id.

    Args:
        engine: the parts.
        entry: its schedule.
        find: returns the record of the order, once there is one.
        order: makes that record.
    """

    def owe(state: ScheduleState, now: datetime) -> ScheduleState:
        return state if find(state) or state.starting is not None else order(state, now)

    for _ in range(_MAX_START_TRIES):
        state = _record(engine, entry.name, owe)
        found = find(state)
        is_owed = found is None or found.time == state.starting
        if is_owed and _start(engine, entry, state) is None:
            problem = _record(engine, entry.name, lambda found, _: found).problem
            raise InvalidRequestError(field="name", value=entry.name, allowed=problem)
        if found is not None:
            return run_id_of(schedule_key(entry.name, found.time))
    allowed = "one start at a time: try again in a moment"
    raise InvalidRequestError(field="name", value=entry.name, allowed=allowed)


def _report(engine: Engine, name: str, state: ScheduleState | None) -> ScheduleReport:
    entry = engine.catalog.schedules.get(name)
    next_at = None
    if entry is not None:
        next_at = next(iter(entry.after(engine.clock.now())), None)
    elif state is not None:
        state = removed(state)
    return ScheduleReport(name, entry, state, next_at)
