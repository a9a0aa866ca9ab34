"""A row as the document it holds. One that holds none is told by what it is indexed by."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pydantic_core

from leasehold.adapters.sqlite.schema import to_column
from leasehold.domain.collections import Collection
from leasehold.domain.document import Document, UnreadableDocument
from leasehold.ports.documents import Query

#: The body as it lies there: one text that is no UTF-8 would make a whole query fail.
BODY: Final = "CAST(body AS BLOB)"

#: Parent and id: the key of a row.
Key = tuple[str, str]


def read_text(raw: bytes) -> str:
    """Return a text of the file; what is no UTF-8 in it can be asked for as it is."""
    return raw.decode(errors="surrogateescape")


def binding(value: Any) -> tuple[str, Any]:
    """Return the mark of a value in a statement, and the value as SQLite takes it."""
    if not isinstance(value, str) or value.isascii():
        return "?", value
    try:
        return "CAST(? AS TEXT)", value.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # half a character, which no text of a file holds
        return "CAST(? AS TEXT)", value.encode(errors="surrogatepass")


def document_in(
    connection: sqlite3.Connection, kind: Collection, key: Key, body: bytes
) -> Document:
    """Return the document that a row holds."""
    try:
        document = pydantic_core.from_json(body, allow_inf_nan=False)
    except (ValueError, TypeError) as error:
        return _unreadable(connection, kind, key, f"it is not JSON: {error}")
    if not isinstance(document, dict):
        return _unreadable(connection, kind, key, "it is not a JSON object")
    return document


def document_at(
    connection: sqlite3.Connection,
    kind: Collection,
    key: Key,
    body: bytes,
    *,
    order_by: str | None,
    column: Any,
) -> Document:
    """Return the document of a row that a query found in this order by this column.

    Whoever reads on begins behind what the document says. One that says something else than its
    row would lead astray.
    """
    document = document_in(connection, kind, key, body)
    if order_by is None or to_column(document.get(order_by)) == column:
        return document
    return _unreadable(connection, kind, key, f"its {order_by} is not what it is indexed by")


def part_at(
    connection: sqlite3.Connection,
    kind: Collection,
    key: Key,
    arrays: bytes,
    *,
    query: Query,
    column: Any,
) -> Document:
    """Return the fields of a row that a query asked for, as `document_at` does the whole.

    Args:
        connection: the store.
        kind: the table.
        key: the row.
        arrays: the values of the fields, as `select` answers them.
        query: what was asked for.
        column: what the row is ordered by.
    """
    try:
        values = [one for array in pydantic_core.from_json(arrays) for one in array[:-1]]
    except (ValueError, TypeError) as error:
        return _unreadable(connection, kind, key, f"it is not JSON: {error}")
    part = _nested(zip(query.paths, values, strict=True))
    if query.order_by is None or to_column(part.get(query.order_by)) == column:
        return part
    return _unreadable(connection, kind, key, f"its {query.order_by} is not what it is indexed by")


def part_of(document: Document, paths: Sequence[str]) -> Document:
    """Return these fields of a document; one that cannot be read is returned as it is."""
    if isinstance(document, UnreadableDocument):
        return document

    def value_at(path: str) -> Any:
        value: Any = document
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return _nested((path, value_at(path)) for path in paths)


def _nested(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for path, value in values:
        if value is None:
            continue
        *above, last = path.split(".")
        place = document
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
    return document


def _unreadable(
    connection: sqlite3.Connection, kind: Collection, key: Key, problem: str
) -> UnreadableDocument:
    """Return what the columns of the row say."""
    columns: Sequence[Any] = ()
    if kind.fields:
        names = ", ".join(f'"{field}"' for field in kind.fields)
        mark, id_ = binding(key[1])
        sql = f'SELECT {names} FROM "{kind.name}" WHERE parent = ? AND id = {mark}'  # noqa: S608 - known, bound
        columns = connection.execute(sql, (key[0], id_)).fetchone() or [None] * len(kind.fields)
    return UnreadableDocument(problem, dict(zip(kind.fields, columns, strict=True)))
