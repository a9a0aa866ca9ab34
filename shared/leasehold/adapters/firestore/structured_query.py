"""A query of the port as Firestore's structured query."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from google.cloud.firestore_v1.types import query as types

from leasehold.adapters.firestore.values import encode
from leasehold.domain.collections import COLLECTIONS
from leasehold.ports.documents import BEHIND_ALL, Query, Snapshot

_ID: Final = "__name__"
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_COMPARE: Final = types.StructuredQuery.FieldFilter.Operator
_DIRECTION: Final = types.StructuredQuery.Direction


def structured(query: Query, documents: str) -> Any:
    """Return the protobuf message of the query.

    Args:
        query: the port's query.
        documents: the path of the store's documents, which an id in a cursor begins with.

    Raises:
        ValueError: the query names a field the collection is not indexed by, or its range is not
            on the field it is ordered by. A mistake in the program, not in the data.
    """
    _check(query)
    message = types.StructuredQuery.pb()()
    message.from_.add(collection_id=query.collection.rpartition("/")[2])
    for field, operator, value in _conditions(query):
        condition = message.where.composite_filter.filters.add().field_filter
        condition.field.field_path = field if _PLAIN.fullmatch(field) else f"`{field}`"
        condition.op = int(operator)
        encode(condition.value, value)
    for operator, id_ in _ids(query):
        condition = message.where.composite_filter.filters.add().field_filter
        condition.field.field_path = _ID
        condition.op = int(operator)
        condition.value.reference_value = f"{documents}/{query.collection}/{id_}"
    if message.HasField("where"):
        message.where.composite_filter.op = types.StructuredQuery.CompositeFilter.Operator.AND
    goes_down = query.descending and not _is_reversed(query)
    direction = _DIRECTION.DESCENDING if goes_down else _DIRECTION.ASCENDING
    for field in (*query.sorts, _ID):
        message.order_by.add(direction=int(direction)).field.field_path = field
    for path in query.paths:
        parts = (part if _PLAIN.fullmatch(part) else f"`{part}`" for part in path.split("."))
        message.select.fields.add().field_path = ".".join(parts)
    if query.after is not None:
        value, id_ = query.after
        cursor = message.end_at if _is_reversed(query) else message.start_at
        cursor.before = _is_reversed(query)
        if query.order_by is not None:
            encode(cursor.values.add(), value)
        cursor.values.add().reference_value = f"{documents}/{query.collection}/{id_}"
    if not _is_reversed(query):
        message.limit.value = query.limit
    return message


def counted(query: Query, documents: str, most: int) -> Any:
    """Return the protobuf message that counts what fits, up to `most`; see `structured`."""
    plain = replace(query, fields=(), limit=most)
    message = types.StructuredAggregationQuery.pb()()
    message.structured_query.CopyFrom(structured(plain, documents))
    message.aggregations.add().count.up_to.value = most
    return message


def in_order(query: Query, snapshots: list[Snapshot]) -> list[Snapshot]:
    """Return the results of the structured query in the order of the port's query.

    Of part of a document there is no version: nothing is decided on it.
    """
    if query.fields:
        snapshots = [found._replace(version=None) for found in snapshots]
    return snapshots[::-1][: query.limit] if _is_reversed(query) else snapshots


def _is_reversed(query: Query) -> bool:
    """Return whether the query runs upwards, without a limit, and its answer is reversed.

    Firestore reads no ids downwards. No list asks for that, and no large collection should.
    """
    return query.descending and query.order_by is None


def _conditions(query: Query) -> list[tuple[str, Any, Any]]:
    conditions: list[tuple[str, Any, Any]] = [
        (field, _COMPARE.EQUAL, value) for field, value in query.equal.items()
    ]
    if query.contains is not None:
        field, value = query.contains
        conditions.append((field, _COMPARE.ARRAY_CONTAINS, value))
    if query.range is not None:
        bounds = [
            (_COMPARE.GREATER_THAN_OR_EQUAL, query.range.at_least),
            (_COMPARE.LESS_THAN, query.range.below),
        ]
        conditions += [
            (query.range.field, operator, bound) for operator, bound in bounds if bound is not None
        ]
    return conditions


def _ids(query: Query) -> list[tuple[Any, str]]:
    if not query.id_prefix:
        return []
    behind = query.id_prefix + BEHIND_ALL
    return [(_COMPARE.GREATER_THAN_OR_EQUAL, query.id_prefix), (_COMPARE.LESS_THAN, behind)]


def _check(query: Query) -> None:
    fields = COLLECTIONS[query.collection.rpartition("/")[2]].fields
    named = [*query.equal, *query.sorts]
    named += [query.contains[0]] if query.contains else []
    unknown = [field for field in named if field not in fields]
    if unknown or (query.range is not None and query.range.field != query.order_by):
        raise ValueError(f"{query.collection} cannot be asked for {query}")
