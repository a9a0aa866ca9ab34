"""A row and the document it holds, both ways.

A row without a document is named by its indexed columns.
"""

from __future__ import annotations

import functools
import itertools
import operator
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pydantic_core

from leasehold.domain.collections import Collection
from leasehold.domain.stored import Document, StoredDocument, UnreadableDocument
from leasehold.ports.documents import BEHIND_ALL, Query, Range

#: The body as it lies there: one text that is not UTF-8 would make a whole query fail.
BODY: Final = "CAST(body AS BLOB)"

#: How long RFC 3339 texts in UTC are, as `to_body` writes them: without and with microseconds.
_TIME_LENGTHS: Final = (len("2026-01-01T00:00:00Z"), len("2026-01-01T00:00:00.000000Z"))

_PLAIN: Final = (str, int, float, bytes)  # SQLite has them as they are

#: Parent and id: the key of a row.
Key = tuple[str, str]


def read_text(raw: bytes) -> str:
    """Return a text of the file; bytes in it that are not UTF-8 can be asked for."""
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

    The next page begins behind the value in the document. One that says something else than its
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


@functools.cache
def insert(table: str, fields: tuple[str, ...], *, replaces: bool = False) -> str:
    """Return the statement that writes a document with these of its fields: a new one, or any."""
    verb = "INSERT OR REPLACE" if replaces else "INSERT"
    names = "".join(f', "{field}"' for field in fields)
    marks = ", ?" * len(fields)
    return f'{verb} INTO "{table}" (parent, id, version, body{names}) VALUES (?, ?, ?, ?{marks})'


@functools.cache
def update(table: str, fields: tuple[str, ...]) -> str:
    """Return the statement that writes a document of a known version, and these of its fields."""
    names = "".join(f', "{field}" = ?' for field in fields)
    return (
        f'UPDATE "{table}" SET version = version + 1, body = ?{names} '  # noqa: S608 - a known table
        "WHERE parent = ? AND id = ? AND version = ?"
    )


def to_body(document: Document) -> str:
    """Return the document as JSON text; times as RFC 3339."""
    if isinstance(document, StoredDocument):
        return document.to_json()
    return pydantic_core.to_json(document).decode()


def indexed(document: Document, kind: Collection) -> tuple[Any, ...]:
    """Return the values of the fields that have a column, None for one that is not there."""
    if not kind.fields:
        return ()
    if isinstance(document, StoredDocument):
        return document.pick(kind.fields)
    return tuple(map(document.get, kind.fields))


def to_column(value: Any) -> Any:
    """Return a field's value as an index compares it; a time that was read is one again."""
    if isinstance(value, str):
        value = _as_time(value)
    if isinstance(value, datetime):
        text = pydantic_core.to_json(value.astimezone(UTC)).decode()  # thrice as fast as isoformat
        return f"{text[1:20]}{text[20:-2] or '.000000'}+00:00"
    if value is None or isinstance(value, _PLAIN):
        return value
    return pydantic_core.to_json(value).decode()


def present_columns(document: Document, kind: Collection) -> dict[str, Any]:
    """Return the columns that have a value in the document; most of a run have none."""
    pairs = zip(kind.fields, indexed(document, kind), strict=True)
    return {field: to_column(value) for field, value in pairs if value is not None}


def changed_columns(before: Document, after: Document, kind: Collection) -> dict[str, Any]:
    """Return the columns whose value is another one; what was read has its times as text."""
    old, new, changed = indexed(before, kind), indexed(after, kind), {}
    for place in itertools.compress(range(len(new)), map(operator.ne, old, new)):
        column = to_column(new[place])
        if type(old[place]) is type(new[place]) or column != to_column(old[place]):
            changed[kind.fields[place]] = column
    return changed


def _as_time(value: str) -> str | datetime:
    """Return the time that a text of `to_body` stands for, and any other text as it is."""
    if value[-1:] == "Z" and len(value) in _TIME_LENGTHS:
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return value
    return value


# A query of the port as SQL, and what it finds.


#: SQLite takes up to 127 arguments of a function, at least.
_PATHS_AT_ONCE: Final = 100


def documents_of(
    connection: sqlite3.Connection, query: Query, kind: Collection, parent: str
) -> Iterator[tuple[str, Any, Document]]:
    """Yield id, version and document of each row that fits, in order; one at a time in memory.

    Of part of a document there is no version: nothing is decided on it.

    Raises:
        ValueError: as `select`.
        sqlite3.Error: the store cannot be read.
    """
    sql, values = select(query, kind, parent)
    if not query.fields:
        for id_, version, body, place in connection.execute(sql, values):
            key = (parent, id_)
            yield (
                id_,
                version,
                document_at(connection, kind, key, body, order_by=query.order_by, column=place),
            )
        return
    try:
        rows = connection.execute(sql, values).fetchall()
    except sqlite3.OperationalError:  # a body that is not JSON hides all others from its functions
        for id_, _, document in documents_of(connection, replace(query, fields=()), kind, parent):
            yield id_, None, part_of(document, query.paths)
        return
    for id_, _, values_, place in rows:
        key = (parent, id_)
        yield (
            id_,
            None,
            part_at(connection, kind, key, values_, query=query, column=place),
        )


def select(query: Query, collection: Collection, parent: str) -> tuple[str, list[Any]]:
    """Return the statement and its values. It answers id, version, body, and what is ordered by.

    In place of the body there are the fields that are asked for, as JSON: arrays of some values
    each. One call with all paths of an array reads the body once.

    Raises:
        ValueError: as `_conditions`.
    """
    where, values = _conditions(query, collection, parent)
    keys = _keys(query)
    direction = "DESC" if query.descending else "ASC"
    order = ", ".join(f"{key} {direction}" for key in keys)
    place = "NULL" if query.order_by is None else f'"{query.order_by}"'
    sql = (
        f'SELECT id, version, {_columns(query)}, {place} FROM "{collection.name}" '  # noqa: S608 - known names, bound values
        f"WHERE {where} ORDER BY {order} LIMIT ?"
    )
    return sql, [*values, query.limit]


def counted(query: Query, collection: Collection, parent: str, most: int) -> tuple[str, list[Any]]:
    """Return the statement that counts what fits, up to `most`, and its values.

    Where an index has all that is asked for, nothing else is read.

    Raises:
        ValueError: as `_conditions`.
    """
    where, values = _conditions(query, collection, parent)
    some = f'SELECT 1 FROM "{collection.name}" WHERE {where} LIMIT ?'  # noqa: S608 - known names
    return f"SELECT count(*) FROM ({some})", [*values, most]  # noqa: S608 - as above


def _conditions(query: Query, collection: Collection, parent: str) -> tuple[str, list[Any]]:
    """Return which rows fit, and the values that are bound in it.

    Raises:
        ValueError: the query names a field the collection is not indexed by, or its range is not
            on the field it is ordered by. A mistake in the program, not in the data.
    """
    named = [*query.equal, *query.sorts]
    named += [query.contains[0]] if query.contains else []
    unknown = [field for field in named if field not in collection.fields]
    if unknown or (query.range is not None and query.range.field != query.order_by):
        raise ValueError(f"{collection.name} cannot be asked for {query}")
    values: list[Any] = []

    def mark(value: Any) -> str:
        placed, bound = binding(to_column(value))
        values.append(bound)
        return placed

    where = [f"parent = {mark(parent)}", "typeof(id) = 'text'"]  # other ids cannot be asked for
    for field, value in query.equal.items():  # a value that is bound fits no index of some values
        where.append(f'"{field}" = {1 if value is True else mark(value)}')
    if query.contains is not None:
        field, value = query.contains
        array = f'CASE WHEN json_valid("{field}") THEN "{field}" END'  # else it is an error
        where.append(f"EXISTS (SELECT 1 FROM json_each({array}) WHERE value = {mark(value)})")  # noqa: S608 - bound
    begins_so = Range("id", query.id_prefix, query.id_prefix + BEHIND_ALL)
    for range_ in filter(None, (query.range, begins_so if query.id_prefix else None)):
        for sign, bound in ((">=", range_.at_least), ("<", range_.below)):
            if bound is not None:
                where.append(f'"{range_.field}" {sign} {mark(bound)}')
    where += [f'"{field}" IS NOT NULL' for field in query.sorts]
    if query.after is not None:
        value, id_ = query.after
        sign = "<" if query.descending else ">"
        last = [id_] if query.order_by is None else [value, id_]
        where.append(f"({', '.join(_keys(query))}) {sign} ({', '.join(map(mark, last))})")
    return " AND ".join(where), values


def _keys(query: Query) -> list[str]:
    return [*(f'"{field}"' for field in query.sorts), "id"]


def _columns(query: Query) -> str:
    paths = ["'$.\"" + path.replace(".", '"."') + "\"'" for path in query.paths]
    if not paths:
        return BODY
    starts = range(0, len(paths), _PATHS_AT_ONCE)
    some = (", ".join(paths[start : start + _PATHS_AT_ONCE]) for start in starts)
    # of one path alone it would answer a value, and no array: '$._' makes it two
    arrays = "||','||".join(f"json_extract(body, {names}, '$._')" for names in some)
    return f"CAST('['||{arrays}||']' AS BLOB)"
