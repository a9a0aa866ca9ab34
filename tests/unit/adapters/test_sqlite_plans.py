"""Each query the code asks is served by an index, and an update touches few of them."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.adapters.sqlite.rows import counted, select
from leasehold.domain.collections import COLLECTIONS, DELIVERIES, RUNS, TRACE
from leasehold.domain.stored import Document, Ref
from leasehold.ports.documents import Query, Range
from tests.unit.adapters.processes import put
from tests.unit.deploy.test_firestore_indexes import queries_of_services

NOW = datetime(2026, 3, 1, tzinfo=UTC)
BEHIND = (NOW, "r-1")

NEWEST_FIRST: dict[str, Any] = {"collection": "runs", "order_by": "createdAt", "descending": True}
ALARMS: dict[str, Any] = {"collection": "runs", "order_by": "alarmAt", "equal": {"shard": 3}}

SERVED_BY = {
    "all runs": (Query(**NEWEST_FIRST), "runs_createdAt"),
    "all runs, the next page": (Query(**NEWEST_FIRST, after=BEHIND), "runs_createdAt"),
    "runs by label": (
        Query(**NEWEST_FIRST, contains=("labels", "a:b"), after=BEHIND),
        "runs_createdAt",
    ),
    "runs by status": (
        Query(**NEWEST_FIRST, equal={"status": "ERROR"}, after=BEHIND),
        "runs_status_createdAt",
    ),
    "runs by pipeline": (
        Query(**NEWEST_FIRST, equal={"pipeline": "review"}, after=BEHIND),
        "runs_pipeline_createdAt",
    ),
    "dead-lettered runs": (
        Query(**NEWEST_FIRST, equal={"deadLettered": True}, after=BEHIND),
        "runs_deadLettered_createdAt",
    ),
    "runs that were given up for a reason": (
        Query(**NEWEST_FIRST, equal={"deadLetterReason": "NEVER_STARTED"}, after=BEHIND),
        "runs_deadLetterReason_createdAt",
    ),
    "runs that were cancelled in a status": (
        Query(**NEWEST_FIRST, equal={"cancelled": True, "status": "PENDING"}, after=BEHIND),
        "runs_cancelled_status_createdAt",
    ),
    "runs by how their ids begin": (
        Query("runs", id_prefix="r-1", after=(None, "r-12")),
        "sqlite_autoindex_runs_1",
    ),
    "runs that were not given up": (
        Query(**NEWEST_FIRST, equal={"deadLettered": False}, after=BEHIND),
        "runs_createdAt",
    ),
    "alarms that are due": (
        Query(**ALARMS, range=Range("alarmAt", below=NOW)),
        "runs_shard_alarmAt",
    ),
    "leases that are over": (
        Query(
            "runs",
            order_by="alarmAt",
            equal={"shard": 3, "status": "IN_PROGRESS"},
            range=Range("alarmAt", below=NOW),
            after=BEHIND,
        ),
        "runs_shard_alarmAt",
    ),
    "live runs": (
        Query(**ALARMS, range=Range("alarmAt", at_least=NOW), after=BEHIND),
        "runs_shard_alarmAt",
    ),
    "steps to claim": (
        Query("runs", order_by="alarmAt", equal={"claimable": "draft"}, after=BEHIND),
        "runs_claimable_alarmAt",
    ),
    "the first run of a line": (
        Query("runs", order_by="line", equal={"waitsIn": "model at once"}, limit=1),
        "runs_waitsIn_line",
    ),
    "the first run of the next line": (
        Query("runs", order_by="waitsIn", then_by="line", range=Range("waitsIn", "model"), limit=1),
        "runs_waitsIn_line",
    ),
}

RUN: Document = {
    "pipeline": "review",
    "labels": ["a:b"],
    "status": "PENDING",
    "deadLettered": False,
    "createdAt": NOW,
    "alarmAt": NOW,
    "shard": 3,
}


@pytest.fixture
def reader(documents: SqliteDocuments, path: Path) -> Iterator[sqlite3.Connection]:
    reader = sqlite3.connect(path)
    yield reader
    reader.close()


def plan(reader: sqlite3.Connection, sql: str, values: list[Any]) -> list[str]:
    return [row[3] for row in reader.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


@pytest.mark.parametrize(("query", "index"), SERVED_BY.values(), ids=SERVED_BY)
def test_a_query_is_searched_in_its_index_and_not_sorted(
    reader: sqlite3.Connection, query: Query, index: str
) -> None:
    steps = plan(reader, *select(query, RUNS, ""))

    assert steps[0].startswith(f"SEARCH runs USING INDEX {index} (parent=?")
    assert not any("SCAN runs" in step or "TEMP B-TREE" in step for step in steps)


def test_no_query_of_the_services_looks_at_a_whole_collection(reader: sqlite3.Connection) -> None:
    """A list above may miss one: the sweep's look at lines read each run of the store."""
    unserved = []
    for query in queries_of_services():
        kind = COLLECTIONS[query.collection]
        begins, *others = plan(reader, *select(query, kind, ""))
        by_ids = f"SEARCH {kind.name} USING INDEX sqlite_autoindex_{kind.name}_1 (parent=?"
        by_index = f"SEARCH {kind.name} USING INDEX {kind.name}_"
        is_sorted = any("TEMP B-TREE" in step for step in others)
        if not begins.startswith(by_ids if query.order_by is None else by_index) or is_sorted:
            unserved.append((query, begins))

    assert unserved == []


@pytest.mark.parametrize(
    "name",
    [
        "all runs",
        "runs by status",
        "runs by pipeline",
        "dead-lettered runs",
        "runs that were given up for a reason",
        "runs that were cancelled in a status",
    ],
)
def test_what_an_index_has_is_counted_in_it_alone(reader: sqlite3.Connection, name: str) -> None:
    query, index = SERVED_BY[name]

    steps = plan(reader, *counted(query, RUNS, "", 1000))

    assert any(step.startswith(f"SEARCH runs USING COVERING INDEX {index} (") for step in steps)
    assert not any("SCAN runs" in step or "TEMP B-TREE" in step for step in steps)


@pytest.mark.parametrize(
    ("equal", "indexes"),
    [
        ({}, ("createdAt",)),
        ({"runId": "r-1"}, ("runId_createdAt",)),
        ({"state": "due"}, ("state_createdAt",)),
        ({"channel": "slack"}, ("channel_createdAt",)),
        ({"state": "due", "channel": "slack"}, ("state_createdAt", "channel_createdAt")),
    ],
)
@pytest.mark.parametrize("after", [None, BEHIND])
def test_each_list_of_deliveries_is_searched_in_an_index_and_not_sorted(
    reader: sqlite3.Connection,
    equal: dict[str, str],
    indexes: tuple[str, ...],
    after: tuple[Any, str] | None,
) -> None:
    query = Query("deliveries", order_by="createdAt", descending=True, equal=equal, after=after)

    steps = plan(reader, *select(query, DELIVERIES, ""))

    begun = tuple(f"SEARCH deliveries USING INDEX deliveries_{name} (" for name in indexes)
    assert steps[0].startswith(begun)
    assert not any("SCAN deliveries" in step or "TEMP B-TREE" in step for step in steps)


@pytest.mark.parametrize("after", [None, (None, "000004")])
def test_the_trace_of_a_run_is_searched_by_its_ids(
    reader: sqlite3.Connection, after: tuple[Any, str] | None
) -> None:
    steps = plan(reader, *select(Query("runs/r-1/trace", after=after), TRACE, "runs/r-1"))

    assert len(steps) == 1
    assert steps[0].startswith("SEARCH trace USING INDEX sqlite_autoindex_trace_1 (parent=?")


def test_a_range_of_alarms_ends_the_search(reader: sqlite3.Connection) -> None:
    """Runs whose alarm is not due are not looked at."""
    query = Query(**ALARMS, range=Range("alarmAt", below=NOW))

    (step,) = plan(reader, *select(query, RUNS, ""))

    assert step.endswith("(parent=? AND shard=? AND alarmAt>? AND alarmAt<?)")


def test_only_runs_that_can_be_claimed_are_in_the_index_that_finds_them(
    documents: SqliteDocuments, reader: sqlite3.Connection
) -> None:
    """Each renewal moves an alarm: it must not cost an entry that no query looks for."""
    documents.transact(Ref("runs", "r-1"), put(RUN))
    documents.transact(Ref("runs", "r-2"), put({**RUN, "claimable": "draft"}))

    ids = reader.execute(
        'SELECT id FROM runs INDEXED BY "runs_claimable_alarmAt" '
        "WHERE claimable IS NOT NULL AND alarmAt IS NOT NULL"
    ).fetchall()

    assert ids == [("r-2",)]


def test_only_runs_that_were_given_up_are_in_the_index_that_finds_them(
    documents: SqliteDocuments, reader: sqlite3.Connection
) -> None:
    """Few are: the others cost no entry, which each start would write."""
    documents.transact(Ref("runs", "r-1"), put(RUN))
    documents.transact(Ref("runs", "r-2"), put({**RUN, "deadLettered": True}))

    ids = reader.execute(
        'SELECT id FROM runs INDEXED BY "runs_deadLettered_createdAt" '
        'WHERE "deadLettered" = 1 AND "createdAt" IS NOT NULL'
    ).fetchall()

    assert ids == [("r-2",)]


def columns_written(documents: SqliteDocuments, change: Document) -> set[str]:
    """Return the columns an update of RUN writes: SQLite asks for leave to write each."""
    written: set[str] = set()
    ref = Ref("runs", "r-1")
    documents.transact(ref, put(RUN))

    def note(action: int, _: str | None, column: str | None, *__: str | None) -> int:
        if action == sqlite3.SQLITE_UPDATE and column is not None:
            written.add(column)
        return sqlite3.SQLITE_OK

    documents._commits._connection.set_authorizer(note)  # noqa: SLF001 - the writer
    documents.transact(ref, put({**RUN, **change}))
    return written


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        ({}, set()),
        ({"heartbeatAt": NOW}, set()),
        ({"labels": ("a:b",)}, set()),
        ({"status": "ERROR"}, {"status"}),
        ({"alarmAt": NOW.replace(microsecond=1)}, {"alarmAt"}),
        ({"alarmAt": None}, {"alarmAt"}),
        ({"claimable": "draft"}, {"claimable"}),
        ({"labels": ["a:b", "c:d"], "deadLettered": True}, {"labels", "deadLettered"}),
    ],
)
def test_an_update_writes_only_the_columns_that_change(
    documents: SqliteDocuments, change: Document, columns: set[str]
) -> None:
    """So that a heartbeat costs no index: times that were read as text are the same times."""
    assert columns_written(documents, change) == {"version", "body"} | columns
