"""The collections a store keeps, and the queries each can serve.

SQLite makes its indexes from this table; Firestore's are deployed from
`deploy/firestore.indexes.json`, which a test compares with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from leasehold.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Collection:
    """A kind of document.

    Args:
        name: the last part of the collection's path: `trace` for `runs/r-1/trace`.
        arrays: fields that `contains` may name.
        indexes: fields of each index, in order; a query is served by one of them, or by the ids.
        rare: those of them that are true for few documents and false for the others: SQLite has
            only the few in their index, and finds the others in that of the order.
        sorted_by: a query for a person may be in the order of one of these. SQLite sorts what the
            parent has, as an index would be one more write of each; Firestore has one of itself.
    """

    name: str
    arrays: tuple[str, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    rare: frozenset[str] = frozenset()
    sorted_by: tuple[str, ...] = ()
    fields: tuple[str, ...] = field(init=False)  # all that a query may name

    def __post_init__(self) -> None:
        named = [field for index in self.indexes for field in index]
        object.__setattr__(
            self, "fields", tuple(dict.fromkeys([*named, *self.sorted_by, *self.arrays]))
        )


RUNS: Final = Collection(
    "runs",
    arrays=("labels",),
    indexes=(
        ("createdAt",),
        ("status", "createdAt"),
        ("pipeline", "createdAt"),
        ("deadLettered", "createdAt"),
        ("deadLetterReason", "createdAt"),  # only runs that were given up are in it
        ("cancelled", "status", "createdAt"),  # a cancelled run keeps its status: not counted in it
        ("parentId",),  # only children are in it; see domain/children.py
        ("openOf",),  # only those that have not ended
        ("claimable", "alarmAt"),  # only runs that wait for a remote worker are in it
        ("waitsIn", "line"),  # only runs that wait for a limit are in it
        # led by the shard: a timestamp alone caps the writes of a collection. It serves leases that
        # are over as well, by a look at each run that is due; Firestore has an index for them
        ("shard", "alarmAt"),
    ),
    rare=frozenset({"deadLettered", "cancelled"}),
)
TRACE: Final = Collection("trace")
CALLS: Final = Collection("calls", sorted_by=("at",))
ITEMS: Final = Collection("items")
DELIVERIES: Final = Collection(
    "deliveries",
    indexes=(
        ("runId", "createdAt"),
        ("createdAt",),
        ("state", "createdAt"),
        ("channel", "createdAt"),
        ("alarmAt",),  # one query finds all that is due: see decision 0026
    ),
)
BREAKERS: Final = Collection("breakers")
LEDGER: Final = Collection("ledger", arrays=("stepTypes",), indexes=(("endedAt",),))
BUDGETS: Final = Collection("budgets")
OVERRIDES: Final = Collection("overrides")
SCHEDULES: Final = Collection("schedules")
WORKERS: Final = Collection("workers", indexes=(("seenAt",),))
SLOTS: Final = Collection("slots", indexes=(("runId",),))
IDENTITIES: Final = Collection("identities")

COLLECTIONS: Final[Mapping[str, Collection]] = {
    c.name: c
    for c in (
        RUNS,
        TRACE,
        CALLS,
        ITEMS,
        OVERRIDES,
        DELIVERIES,
        BREAKERS,
        LEDGER,
        BUDGETS,
        SCHEDULES,
        WORKERS,
        SLOTS,
        IDENTITIES,
    )
}
