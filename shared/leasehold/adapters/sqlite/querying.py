"""A query of the port as SQL, and what it finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from leasehold.adapters.sqlite.rows import BODY, binding, document_at, part_at, part_of, to_column
from leasehold.domain.collections import Collection
from leasehold.domain.stored import Document
from leasehold.ports.documents import Query

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
        ValueError: the query names a field the collection is not indexed by, or its range is not
            on the field it is ordered by. A mistake in the program, not in the data.
    """
    named = [*query.equal, *([query.order_by] if query.order_by else [])]
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
    if query.range is not None:
        for sign, bound in ((">=", query.range.at_least), ("<", query.range.below)):
            if bound is not None:
                where.append(f'"{query.range.field}" {sign} {mark(bound)}')
    keys = ["id"] if query.order_by is None else [f'"{query.order_by}"', "id"]
    if query.order_by is not None:
        where.append(f'"{query.order_by}" IS NOT NULL')
    if query.after is not None:
        value, id_ = query.after
        sign = "<" if query.descending else ">"
        last = [id_] if query.order_by is None else [value, id_]
        where.append(f"({', '.join(keys)}) {sign} ({', '.join(map(mark, last))})")
    direction = "DESC" if query.descending else "ASC"
    order = ", ".join(f"{key} {direction}" for key in keys)
    place = "NULL" if query.order_by is None else f'"{query.order_by}"'
    sql = (
        f'SELECT id, version, {_columns(query)}, {place} FROM "{collection.name}" '  # noqa: S608 - known names, bound values
        f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?"
    )
    return sql, [*values, query.limit]


def _columns(query: Query) -> str:
    paths = ["'$.\"" + path.replace(".", '"."') + "\"'" for path in query.paths]
    if not paths:
        return BODY
    starts = range(0, len(paths), _PATHS_AT_ONCE)
    some = (", ".join(paths[start : start + _PATHS_AT_ONCE]) for start in starts)
    # of one path alone it would answer a value, and no array: '$._' makes it two
    arrays = "||','||".join(f"json_extract(body, {names}, '$._')" for names in some)
    return f"CAST('['||{arrays}||']' AS BLOB)"
