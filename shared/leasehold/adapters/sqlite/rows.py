"""A row as the document it holds. One that holds none is told by what it is indexed by."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import pydantic_core

from leasehold.adapters.sqlite.schema import to_column
from leasehold.domain.collections import Collection
from leasehold.domain.document import Document, UnreadableDocument

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
