"""A query of the port as SQL."""

from __future__ import annotations

from typing import Any

from leasehold.adapters.sqlite.rows import BODY, binding
from leasehold.adapters.sqlite.schema import to_column
from leasehold.domain.collections import Collection
from leasehold.ports.documents import Query


def select(query: Query, collection: Collection, parent: str) -> tuple[str, list[Any]]:
    """Return the statement and its values. It answers id, version, body, and what is ordered by.

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
    where += [f'"{field}" = {mark(value)}' for field, value in query.equal.items()]
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
        f'SELECT id, version, {BODY}, {place} FROM "{collection.name}" '  # noqa: S608 - known names, bound values
        f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?"
    )
    return sql, [*values, query.limit]
