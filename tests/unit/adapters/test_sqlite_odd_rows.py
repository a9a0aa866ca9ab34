"""Rows that hold no document: they are reported and left as they are, and hide no other."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.stored import Document, Ref, UnreadableDocument, Write
from leasehold.ports.documents import Query, Range
from tests.unit.adapters.processes import put

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ODD = Ref("runs", "r-odd")
BODIES = {
    "no JSON": b"{",
    "nothing": b"",
    "no object": b"[]",
    "a text": b'"words"',
    "no UTF-8": b'{"status": "\xff"}',
    "half a character": rb'{"status": "\ud800"}',
    "no number": b'{"shard": NaN}',
    "a number of 5,000 digits": b'{"shard": ' + b"9" * 5000 + b"}",
    "too deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "not what it is indexed by": b'{"status": "PENDING"}',
}


def fields(place: int) -> Document:
    at = NOON + timedelta(minutes=place)
    return {"status": "PENDING", "shard": 0, "alarmAt": at, "createdAt": at, "labels": ["a:b"]}


def spoil(path: Path, column: str, value: object, as_: str = "TEXT") -> None:
    """Write a value as no Leasehold would."""
    with sqlite3.connect(path) as other:
        other.execute(
            f'UPDATE runs SET "{column}" = CAST(? AS {as_}) WHERE id = ?',  # noqa: S608
            (value, ODD.id),
        )
    other.close()


@pytest.fixture
def three(documents: SqliteDocuments) -> SqliteDocuments:
    """A store with one document before and one behind the odd one."""
    for place, id_ in enumerate(("r-a", ODD.id, "r-z")):
        documents.transact(Ref("runs", id_), put(fields(place)))
    return documents


BY_ALARM = Query(
    "runs",
    order_by="alarmAt",
    equal={"shard": 0},
    range=Range("alarmAt", below=NOON.replace(hour=23)),
)
BY_CREATION = Query("runs", order_by="createdAt", descending=True)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", ["TEXT", "BLOB"])
def test_a_row_that_is_not_a_document_hides_no_other(
    three: SqliteDocuments, path: Path, body: str, kind: str
) -> None:
    """It is found at its place, with what it is indexed by: paging continues behind it."""
    spoil(path, "body", BODIES[body], kind)

    found = three.query(BY_ALARM)
    newest = three.query(BY_CREATION)

    assert [one.ref.id for one in found] == ["r-a", "r-odd", "r-z"]
    assert [one.ref.id for one in newest] == ["r-z", "r-odd", "r-a"]
    assert [isinstance(one.document, UnreadableDocument) for one in found] == [False, True, False]
    behind = Query("runs", order_by="alarmAt", after=(found[1].document["alarmAt"], "r-odd"))
    assert [one.ref.id for one in three.query(behind)] == ["r-z"]


@pytest.mark.parametrize("body", ["no JSON", "nothing", "no object", "not what it is indexed by"])
def test_such_a_row_hides_no_other_where_only_some_fields_are_read(
    three: SqliteDocuments, path: Path, body: str
) -> None:
    """SQLite's functions for JSON refuse a whole query for one such body."""
    spoil(path, "body", BODIES[body])

    found = three.query(replace(BY_CREATION, fields=("status",)))

    assert [one.ref.id for one in found] == ["r-z", "r-odd", "r-a"]
    assert [isinstance(one.document, UnreadableDocument) for one in found] == [False, True, False]
    assert found[0].document.keys() == {"createdAt", "status"}


@pytest.mark.parametrize("body", [name for name in BODIES if name != "not what it is indexed by"])
def test_who_asks_for_such_a_row_is_told_what_it_is(
    three: SqliteDocuments, path: Path, body: str
) -> None:
    spoil(path, "body", BODIES[body])

    found = three.get(ODD)

    assert found is not None
    assert isinstance(found.document, UnreadableDocument)
    assert found.document.problem


def test_a_decision_on_such_a_row_that_is_refused_writes_nothing(
    three: SqliteDocuments, path: Path
) -> None:
    spoil(path, "body", b"{")

    def refuse(document: Document | None, _: datetime) -> Write[None]:
        assert isinstance(document, UnreadableDocument)
        raise LookupError

    with pytest.raises(LookupError):
        three.transact(ODD, refuse)

    with sqlite3.connect(path) as other:
        assert other.execute("SELECT body FROM runs WHERE id = 'r-odd'").fetchone() == ("{",)
    other.close()


def test_such_a_row_can_be_replaced_and_deleted(three: SqliteDocuments, path: Path) -> None:
    """Its columns follow, although its indexed fields were unreadable."""
    spoil(path, "body", b"{")

    three.transact(ODD, put(fields(5)))

    assert [one.ref.id for one in three.query(BY_ALARM)] == ["r-a", "r-z", "r-odd"]
    three.delete(ODD)
    assert three.get(ODD) is None


@pytest.mark.parametrize("labels", ["{", "7", b"\xff", None])
def test_labels_that_are_not_list_hide_no_other(
    three: SqliteDocuments, path: Path, labels: object
) -> None:
    spoil(path, "labels", labels, "BLOB" if isinstance(labels, bytes) else "TEXT")

    found = three.query(Query("runs", order_by="createdAt", contains=("labels", "a:b")))

    assert [one.ref.id for one in found] == ["r-a", "r-z"]


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("alarmAt", "soon", "TEXT"),
        ("alarmAt", b"\xff", "TEXT"),
        ("alarmAt", b"\xff", "BLOB"),
        ("alarmAt", 7, "INTEGER"),
        ("createdAt", b"\xff", "TEXT"),
        ("id", b"r-\xff", "TEXT"),
        ("version", "old", "TEXT"),
    ],
)
def test_an_odd_column_hides_no_other_and_can_be_paged_over(
    three: SqliteDocuments, path: Path, column: str, value: object, kind: str
) -> None:
    spoil(path, column, value, kind)

    for order_by in ("alarmAt", "createdAt"):
        seen, after = [], None
        for _ in range(3):
            (one,) = three.query(Query("runs", order_by=order_by, limit=1, after=after))
            seen.append(one.ref.id)
            after = (one.document[order_by], one.ref.id)
        assert {"r-a", "r-z"} < set(seen)
        assert three.query(Query("runs", order_by=order_by, limit=1, after=after)) == []
