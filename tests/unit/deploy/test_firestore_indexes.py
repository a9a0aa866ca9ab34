"""deploy/firestore.indexes.json serves each query the services ask.

The emulator answers any query, with an index or without. Firestore refuses one that none serves;
so these tests are what stands between a new query and an error in production.
"""

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leasehold import Limit, Registry, StepDispatchEntry
from leasehold.adapters.null_stores import NullArtifacts, NullDocuments
from leasehold.bounded_calls import side_by_side
from leasehold.budgets.proposal import BudgetSettings
from leasehold.domain.checkpoint import CallResult
from leasehold.domain.children import GivenItems, ItemRecord
from leasehold.domain.collections import DELIVERIES, LEDGER, RUNS, WORKERS
from leasehold.domain.delivery import Delivery
from leasehold.domain.manifest import Manifest
from leasehold.domain.stored import Stored
from leasehold.domain.trace import TraceEvent
from leasehold.domain.trouble import Trouble
from leasehold.domain.worker_note import WorkerKind, WorkerNote
from leasehold.errors import NothingToClaimError
from leasehold.ports.clock import Threads
from leasehold.ports.documents import Query, Snapshot
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import claim_step
from leasehold.services.adopt_runs import live_runs, parked_runs, take_up_dispatched
from leasehold.services.count_runs import read_figures
from leasehold.services.derive_budgets import LedgerSamples
from leasehold.services.engine import Engine, LineClock, Process, Retention
from leasehold.services.read_runs import RunFilter, list_runs
from leasehold.services.sweep import sweep
from leasehold.services.worker_notes import Presence, live_workers
from leasehold.testing import FrozenClock

FILE = Path(__file__).parents[3] / "shared/leasehold/deploy/firestore.indexes.json"
DECLARED: Mapping[str, Any] = json.loads(FILE.read_text())

#: The collection; fields that a filter compares, then the field that sorts and its direction.
Index = tuple[str, frozenset[str], str, str]

#: How each field sorts that lists and alarms are sorted by.
DIRECTION = {
    "createdAt": "DESCENDING",
    "alarmAt": "ASCENDING",
    "line": "ASCENDING",
    "parentId": "ASCENDING",
    "openOf": "ASCENDING",
}
#: The notes of who lives are read newest first, and deleted oldest first.
BOTH_WAYS = {("workers", "seenAt", order) for order in ("ASCENDING", "DESCENDING")}

FILTERS = {
    "status": "ERROR",
    "pipeline": "review",
    "dead_lettered": True,
    "label": "team:a",
    "reason": "RETRIES_EXHAUSTED",
}
#: What decides which index is asked in place of that of the other filters.
ASKED_ELSEWHERE: list[dict[str, Any]] = [
    *({"trouble": trouble} for trouble in Trouble),
    {"id_prefix": "r-1"},
]
#: What no index tells: it is looked at in each run that a query found.
LOOKED_AT = {
    "paused": True,
    "cancelled": True,
    "step": "draft",
    "since": datetime(2026, 1, 1, tzinfo=UTC),
    "until": datetime(2026, 2, 1, tzinfo=UTC),
}


class AskedDocuments(NullDocuments):
    """A store with nothing in it, which keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(FrozenClock())
        self.queries: list[Query] = []

    def query(self, query: Query) -> Sequence[Snapshot]:
        self.queries.append(query)
        return ()

    def count(self, query: Query, most: int) -> int:  # noqa: ARG002 - the port's shape
        self.queries.append(query)
        return 0


REMOTE = StepDispatchEntry(
    step_type="elsewhere",
    handler="remote",
    agent_timeout=timedelta(minutes=1),
    dispatch_deadline=timedelta(minutes=2),
)
LIMITED = StepDispatchEntry(
    step_type="limited",
    handler="tests.worlds.catalogs.limited_calls:asks",
    agent_timeout=timedelta(minutes=1),
    dispatch_deadline=timedelta(minutes=2),
    limits=(Limit("provider", at_once=1),),
)


def queries_of_services() -> list[Query]:
    """Return what is asked for lists, however they are filtered, live runs, alarms and claims."""
    documents = AskedDocuments()
    catalog = Catalog(
        steps=Registry("dispatch", [REMOTE, LIMITED]), pipelines=Registry("pipelines", [])
    )
    rules = SimpleNamespace(grace=timedelta(minutes=1), pauses={}, pause_of=lambda _: None)
    clock = FrozenClock()
    parts = SimpleNamespace(
        documents=documents,
        artifacts=NullArtifacts(),
        clock=clock,
        catalog=catalog,
        threads=Threads(side_by_side, lambda call, _: bool(call()) or True, time.sleep),
        process=Process("vm-1/1@1", code_hash="0a1b"),
        rules=rules,
        dispatch_rules=lambda: rules,
        budgets=BudgetSettings(),
        retention=Retention(timedelta(days=30)),
        lines=LineClock(forget_at=0.0),
    )
    engine = cast("Engine", parts)
    for count in range(len(FILTERS) + 1):
        for names in itertools.combinations(FILTERS, count):
            wanted: dict[str, Any] = {name: FILTERS[name] for name in names}
            list_runs(engine, RunFilter(**wanted))
            list_runs(engine, RunFilter(**wanted, **LOOKED_AT))
            for elsewhere in ASKED_ELSEWHERE:
                list_runs(engine, RunFilter(**wanted, **elsewhere))
    read_figures(engine)
    list(live_runs(documents))
    list(parked_runs(engine))
    take_up_dispatched(engine, since=clock.now())
    sweep(engine)
    Presence(WorkerKind.SERVE).note(engine)
    live_workers(engine)
    LedgerSamples(engine).samples("draft", clock.now())
    with pytest.raises(NothingToClaimError):
        claim_step(engine, "elsewhere", "vm-1")
    return documents.queries


def composite(declared: Mapping[str, Any]) -> Index:
    """Return a composite index; a field that must hold a value is told from one that is equal."""
    *led_by, last = declared["fields"]
    names = [
        f"{field['fieldPath']}[]" if "arrayConfig" in field else field["fieldPath"]
        for field in led_by
    ]
    return declared["collectionGroup"], frozenset(names), last["fieldPath"], last["order"]


COMPOSITES = [composite(index) for index in DECLARED["indexes"]]
SINGLES = {
    (override["collectionGroup"], override["fieldPath"], index["order"])
    for override in DECLARED["fieldOverrides"]
    for index in override["indexes"]
}


def is_served(query: Query) -> bool:
    """Return whether the declared indexes serve a query.

    Firestore walks one index whose leading fields are those that are compared and whose last is
    the one that sorts. Where several fields must be equal it can also merge indexes that sort
    alike and have those fields between them. That is documented for equality; an array that must
    hold a value is taken to need its own index.
    """
    order = "DESCENDING" if query.descending else "ASCENDING"
    if query.order_by is None:  # ids have an index of their own
        return not query.equal and query.contains is None
    compared = set(query.equal)
    last = query.then_by or query.order_by
    if query.then_by is not None:  # which one index has behind the field that sorts first
        compared.add(query.order_by)
    if query.contains is not None:
        compared.add(f"{query.contains[0]}[]")
    if not compared:
        return (query.collection, query.order_by, order) in SINGLES
    fitting = [
        fields
        for collection, fields, *sort in COMPOSITES
        if (collection, *sort) == (query.collection, last, order)
    ]
    if compared in fitting:
        return True
    merged = [fields for fields in fitting if fields < compared]
    return query.contains is None and compared == set().union(*merged)


def test_each_query_of_the_services_is_served() -> None:
    queries = queries_of_services()

    assert len(queries) > 1000
    assert [query for query in queries if not is_served(query)] == []


@pytest.mark.parametrize(
    "query",
    [
        Query("runs", order_by="createdAt"),
        Query("runs", order_by="alarmAt"),
        Query("deliveries", order_by="alarmAt", descending=True),
        Query("deliveries", order_by="createdAt", equal={"status": "ERROR"}, descending=True),
        Query("runs", order_by="createdAt", equal={"shard": 3}, descending=True),
        Query("runs", order_by="createdAt", equal={"status": "ERROR"}),
        Query(
            "runs",
            order_by="createdAt",
            equal={"status": "ERROR", "shard": 3},
            contains=("labels", "team:a"),
            descending=True,
        ),
    ],
    ids=repr,
)
def test_a_query_that_is_not_used_is_not_served(query: Query) -> None:
    """So the rule above can fail."""
    assert not is_served(query)


def test_the_declared_indexes_are_those_of_the_collections() -> None:
    """SQLite makes its indexes from the same table; arrays are combined with each of the lists.

    But for that of reasons: it has few runs, so their labels are looked at.

    Leases that are over it finds among the runs that are due, for the price of a look at each of
    those; to Firestore such a look is a read that is paid for.
    """
    expected: set[Index] = set()
    for collection in (RUNS, DELIVERIES):
        pairs = [index for index in collection.indexes if len(index) > 1]
        for *compared, last in pairs:
            expected.add((collection.name, frozenset(compared), last, DIRECTION[last]))
    lists = [index[0] for index in RUNS.indexes if index[1:] == ("createdAt",)]
    lists.remove("deadLetterReason")
    for count in range(len(lists) + 1):
        for fields in itertools.combinations(lists, count):
            labelled = frozenset({"labels[]", *fields})
            expected.add(("runs", labelled, "createdAt", "DESCENDING"))
    expected.add(("runs", frozenset({"shard", "status"}), "alarmAt", "ASCENDING"))
    expected.add(("ledger", frozenset({"stepTypes[]"}), "endedAt", "DESCENDING"))

    assert len(COMPOSITES) == len(expected)
    assert set(COMPOSITES) == expected
    arrays = [collection.arrays for collection in (RUNS, DELIVERIES, LEDGER)]
    assert arrays == [("labels",), (), ("stepTypes",)]
    assert LEDGER.indexes == (("endedAt",),)
    assert {
        (collection.name, index[0], DIRECTION[index[0]])
        for collection in (RUNS, DELIVERIES)
        for index in collection.indexes
        if len(index) == 1
    } | BOTH_WAYS == SINGLES
    assert WORKERS.indexes == (("seenAt",),)


def exempt(collection: str) -> set[str]:
    """Return the fields of a collection that have no index of their own."""
    return {
        override["fieldPath"]
        for override in DECLARED["fieldOverrides"]
        if override["collectionGroup"] == collection and override["indexes"] == []
    }


def names_of(model: type[Stored]) -> set[str]:
    return {str(field.alias) for field in model.model_fields.values()}


def test_no_field_of_a_run_is_indexed_unasked() -> None:
    """Firestore indexes each field that is not exempt, and those within its maps, both ways.

    A step's output or a heartbeat would cost entries at each write, and a time that only grows
    caps the writes of the whole collection at 500 a second.
    """
    indexed = {"createdAt", "parentId", "openOf"}
    assert exempt("runs") == (names_of(Manifest) | {"_commit"}) - indexed


def test_no_field_of_an_item_is_indexed() -> None:
    """Items are read by their ids alone."""
    assert exempt("items") == names_of(ItemRecord) | names_of(GivenItems) | {"_commit"}


def test_no_field_of_a_delivery_is_indexed_unasked() -> None:
    """Its alarm has an index without a shard: one query in place of sixteen finds what is due.

    The ceiling of that, some 250 announcements a second, is far above what providers take.
    """
    indexed = {"createdAt", "alarmAt"}
    assert exempt("deliveries") == (names_of(Delivery) | {"_commit"}) - indexed


def test_no_field_of_a_recorded_call_is_indexed_but_its_time() -> None:
    """Calls are read by their ids, and listed in the order in which they were recorded."""
    assert exempt("calls") == names_of(CallResult) - {"at"} | {"_commit"}


def test_no_field_of_a_trace_event_is_indexed() -> None:
    """A trace is read by its ids alone."""
    assert exempt("trace") == names_of(TraceEvent) | {"_commit"}


def test_no_field_of_a_note_that_a_process_lives_is_indexed_unasked() -> None:
    assert exempt("workers") == (names_of(WorkerNote) | {"_commit"}) - {"seenAt"}


def test_the_file_has_the_form_that_firebase_deploys() -> None:
    for index in DECLARED["indexes"]:
        assert index["queryScope"] == "COLLECTION"
        assert all(len(field) == 2 for field in index["fields"])
    assert set(DECLARED) == {"indexes", "fieldOverrides"}
