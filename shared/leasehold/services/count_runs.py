"""How many runs are in each state, and how well they are attended: for pages and for alerts.

Stores count in their indexes, up to a bound, and read no run for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from leasehold.domain.status import DeadLetterReason, RunStatus
from leasehold.ports.documents import Query
from leasehold.services.engine import Engine

#: A page shows more as "1,000+". To Firestore that many are one read.
MOST: Final = 1000
#: So many runs that were cancelled, or given up, are told from those of their status that are live.
MOST_OVER: Final = 10_000

#: How many counts a store is asked for at once.
_WIDTH: Final = 8

_DEAD: Final = {"deadLettered": True}


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
                status: (runs_query(status=status.value, cancelled=True), MOST_OVER)
                for status in _LIVE.values()
            },
            "dead": (runs_query(**_DEAD), MOST_OVER),
        },
    )
    over[RunStatus.ERROR] += over["dead"]  # they stay in it
    found = count_side_by_side(
        engine,
        {
            **{
                state: (runs_query(status=status.value), MOST + over[status])
                for state, status in _LIVE.items()
            },
            "completed": (runs_query(status=RunStatus.COMPLETED.value), MOST),
            **{
                reason: (runs_query(deadLetterReason=reason.value), MOST)
                for reason in DeadLetterReason
            },
        },
    )
    live = {state: max(0, found[state] - over[status]) for state, status in _LIVE.items()}
    states = {
        **live,
        "completed": found["completed"],
        "deadLettered": min(over["dead"], MOST),
    }
    reasons = {reason.value: found[reason] for reason in DeadLetterReason}
    return RunCounts(states, reasons, MOST)


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
    engine.threads.side_by_side(lambda: next(calls, None), _WIDTH)
    return counts
