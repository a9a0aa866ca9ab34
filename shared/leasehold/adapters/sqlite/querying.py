"""A query of the port as SQL."""

from __future__ import annotations

from typing import Any

from leasehold.adapters.sqlite.schema import to_column
from leasehold.domain.collections import Collection
from leasehold.ports.documents import Query


def select(query: Query, collection: Collection, parent: str) -> tuple[str, list[Any]]:
    """Return the statement, which answers id, version and body, and its values.

    Raises:
        ValueError: the query names a field the collection is not indexed by, or its range is not
            on the field it is ordered by. A mistake in the program, not in the data.
    """
    named = [*query.equal, *([query.order_by] if query.order_by else [])]
    named += [query.contains[0]] if query.contains else []
    unknown = [field for field in named if field not in collection.fields]
    if unknown or (query.range is not None and query.range.field != query.order_by):
        raise ValueError(f"{collection.name} cannot be asked for {query}")
    where = ["parent = ?"]
    values: list[Any] = [parent]
    for field, value in query.equal.items():
        where.append(f'"{field}" = ?')
        values.append(to_column(value))
    if query.contains is not None:
        field, value = query.contains
        where.append(f'EXISTS (SELECT 1 FROM json_each("{field}") WHERE value = ?)')  # noqa: S608
        values.append(to_column(value))
    if query.range is not None:
        for sign, bound in ((">=", query.range.at_least), ("<", query.range.below)):
            if bound is not None:
                where.append(f'"{query.range.field}" {sign} ?')
                values.append(to_column(bound))
    keys = ["id"] if query.order_by is None else [f'"{query.order_by}"', "id"]
    if query.order_by is not None:
        where.append(f'"{query.order_by}" IS NOT NULL')
    if query.after is not None:
        value, id_ = query.after
        sign = "<" if query.descending else ">"
        marks = ", ".join("?" * len(keys))
        where.append(f"({', '.join(keys)}) {sign} ({marks})")
        values += [id_] if query.order_by is None else [to_column(value), id_]
    direction = "DESC" if query.descending else "ASC"
    order = ", ".join(f"{key} {direction}" for key in keys)
    sql = (
        f'SELECT id, version, body FROM "{collection.name}" '  # noqa: S608 - known names, bound values
        f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?"
    )
    return sql, [*values, query.limit]
