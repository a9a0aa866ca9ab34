"""How many runs are in each state, and how well they are attended: for pages and for alerts.

Stores count in their indexes, up to a bound, and read no run for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pydantic import ValidationError

from leasehold.domain.delivery import DeliveryState
from leasehold.domain.lifecycle.repair import LONG_PAST
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.spend import NOTHING, Spend, total_of
from leasehold.domain.status import AttemptEnd, DeadLetterReason, RunStatus
from leasehold.domain.stored import Document
from leasehold.frozen import dataclass
from leasehold.ports.documents import Query, Range
from leasehold.services.engine import Engine
from leasehold.services.troubled_runs import moment_of

#: A page shows more as "1,000+". To Firestore that many are one read.
MAX_COUNTED: Final = 1000
#: So many runs that were cancelled, or given up, are told from those of their status that are live.
MAX_OVER_COUNTED: Final = 10_000

#: How many counts a store is asked for at once.
_COUNTS_AT_ONCE: Final = 8

#: The fields of what lies over a status.
OVERLAYS: Final = ("paused", "cancelled", "deadLettered")


@dataclass(frozen=True, slots=True)
class RunCounts:
    """How many runs there are; `most` means that many, or more.

    Args:
        states: by their state, without the cancelled ones.
        reasons: those that were given up, by the reason.
        most: what is counted up to.
    """

    states: Mapping[str, int]
    reasons: Mapping[str, int]
    most: int


def count_runs(engine: Engine) -> RunCounts:
    """Count the runs of a store.

    Raises:
        StoreUnavailableError: the store did not answer. Retryable.
    """
    over = count_side_by_side(
        engine,
        {
            **{
                status: (runs_query(status=status.value, cancelled=True), MAX_OVER_COUNTED)
                for status in _LIVE.values()
            },
            "dead": (runs_query(deadLettered=True), MAX_OVER_COUNTED),
        },
    )
    over[RunStatus.ERROR] += over["dead"]  # they stay in it
    found = count_side_by_side(
        engine,
        {
            **{
                state: (runs_query(status=status.value), MAX_COUNTED + over[status])
                for state, status in _LIVE.items()
            },
            "completed": (runs_query(status=RunStatus.COMPLETED.value), MAX_COUNTED),
            **{
                reason: (runs_query(deadLetterReason=reason.value), MAX_COUNTED)
                for reason in DeadLetterReason
            },
        },
    )
    live = {state: max(0, found[state] - over[status]) for state, status in _LIVE.items()}
    states = {
        **live,
        "completed": found["completed"],
        "deadLettered": min(over["dead"], MAX_COUNTED),
    }
    reasons = {reason.value: found[reason] for reason in DeadLetterReason}
    return RunCounts(states, reasons, MAX_COUNTED)


#: The states that are live, and the status in which their runs are.
_LIVE: Final[Mapping[str, RunStatus]] = {
    "pending": RunStatus.PENDING,
    "inProgress": RunStatus.IN_PROGRESS,
    "retrying": RunStatus.ERROR,
    "blocked": RunStatus.BLOCKED,
}


def runs_query(**equal: Any) -> Query:
    """Return the query of the runs whose fields have these values."""
    return Query("runs", order_by="createdAt", equal=equal, descending=True)


def count_side_by_side(engine: Engine, asked: Mapping[str, tuple[Query, int]]) -> dict[str, int]:
    """Return how many documents fit each of these queries, up to a bound for each."""
    counts: dict[str, int] = {}

    def count(name: str, query: Query, most: int) -> None:
        counts[name] = engine.documents.count(query, most)

    calls = iter([partial(count, name, *given) for name, given in asked.items()])
    engine.threads.side_by_side(lambda: next(calls, None), _COUNTS_AT_ONCE)
    return counts


# Figures for alerts: whether runs are attended, and how attempts and announcements end.


#: The newest runs that are looked at, as their attempts have no index.
MAX_RUNS_SUMMED: Final = 200

_A_MOMENT: Final = timedelta(microseconds=1)
_SPENDING: Final = ("pipeline", "spentBefore")
#: What tells that a run has neither an owner nor an alarm.
_OWNED: Final = ("status", *OVERLAYS, "purgedAt", "alarmAt", "position.lease.leaseId")


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a store at one moment.

    Args:
        counts: the runs.
        oldest_due_alarm_s: for how many seconds the oldest alarm is due; 0: none is.
        unowned: runs that have neither an owner nor an alarm that is attended, by the code of
            their breach, as an audit has it.
        attempts: of the newest runs, by how they ended.
        deliveries: by their state.
        spend: of the newest runs, by their pipeline; those that have spent nothing are left out.
        looked_at: how many of the newest runs were looked at, at most.
    """

    counts: RunCounts
    oldest_due_alarm_s: float
    unowned: Mapping[str, int]
    attempts: Mapping[str, int]
    deliveries: Mapping[str, int]
    spend: Mapping[str, Spend]
    looked_at: int = MAX_RUNS_SUMMED


def read_figures(engine: Engine) -> Figures:
    """Count what alerts ask for; the newest runs are looked at where there is no index.

    Raises:
        StoreUnavailableError: the store did not answer. Retryable.
    """
    now = engine.clock.now()
    newest = engine.documents.query(_newest(engine))
    long_past = {
        f"shard {shard}": (_due(shard, now - LONG_PAST), MAX_COUNTED) for shard in range(SHARDS)
    }
    deliveries = {
        state.value: (
            Query("deliveries", order_by="createdAt", equal={"state": state}, descending=True),
            MAX_COUNTED,
        )
        for state in DeliveryState
    }
    counted = count_side_by_side(engine, {**long_past, **deliveries})
    return Figures(
        counts=count_runs(engine),
        oldest_due_alarm_s=_oldest_due_alarm_s(engine, now),
        unowned={
            "overdue": min(MAX_COUNTED, sum(counted[name] for name in long_past)),
            "no_alarm": sum(_has_no_alarm(run.document) for run in newest),
        },
        attempts=_attempts(run.document for run in newest),
        deliveries={name: counted[name] for name in deliveries},
        spend=_spend(run.document for run in newest),
    )


def _newest(engine: Engine) -> Query:
    names = engine.catalog.place_names
    of_steps = (f"steps.{name}.{field}" for name in names for field in ("attempts", "spend"))
    return replace(runs_query(), limit=MAX_RUNS_SUMMED, fields=(*_OWNED, *_SPENDING, *of_steps))


def _due(shard: int, below: datetime) -> Query:
    due = Range("alarmAt", below=below)
    return Query("runs", order_by="alarmAt", equal={"shard": shard}, range=due)


def _oldest_due_alarm_s(engine: Engine, now: datetime) -> float:
    alarms: list[datetime] = []

    def look(shard: int) -> None:
        query = replace(_due(shard, now + _A_MOMENT), limit=1, fields=("shard",))
        alarms.extend(
            alarm
            for found in engine.documents.query(query)
            if (alarm := moment_of(found.document.get("alarmAt"))) is not None
        )

    calls = iter([partial(look, shard) for shard in range(SHARDS)])
    engine.threads.side_by_side(lambda: next(calls, None), _COUNTS_AT_ONCE)
    return max(0.0, (now - min(alarms, default=now)).total_seconds())


def _has_no_alarm(run: Document) -> bool:
    """Return whether a run is to move, and neither a worker nor an alarm moves it."""
    rests = (RunStatus.COMPLETED, RunStatus.BLOCKED)
    position = run.get("position")
    lease = position.get("lease") if isinstance(position, Mapping) else None
    is_over = run.get("status") in rests or any(run.get(name) for name in (*OVERLAYS, "purgedAt"))
    return not (is_over or lease or run.get("alarmAt"))


def _attempts(runs: Iterable[Document]) -> Mapping[str, int]:
    """Return how many attempts of these runs left no output that counts, by how they ended."""
    found = dict.fromkeys((end.value for end in AttemptEnd), 0)
    for run in runs:
        steps = run.get("steps")
        for step in steps.values() if isinstance(steps, Mapping) else ():
            counts = step.get("attempts") if isinstance(step, Mapping) else None
            for name, count in counts.items() if isinstance(counts, Mapping) else ():
                if name in found and isinstance(count, int):
                    found[name] += count
    return found


def _spend(runs: Iterable[Document]) -> Mapping[str, Spend]:
    """Return what these runs have spent themselves, by their pipeline."""
    found: dict[str, Spend] = {}
    for run in runs:
        steps = run.get("steps")
        records = steps.values() if isinstance(steps, Mapping) else ()
        total = total_of(_amount(one.get("spend")) for one in records if isinstance(one, Mapping))
        own = total.beyond(_amount(run.get("spentBefore")))
        if not own.is_nothing:
            pipeline = str(run.get("pipeline"))
            found[pipeline] = own.plus(found.get(pipeline))
    return found


def _amount(found: object) -> Spend:
    try:
        amount: Spend = Spend.model_validate(found)
    except ValidationError:  # there is none, or it was edited
        return NOTHING
    return amount
