"""How documents lie in the file: a table a kind of collection, its indexed fields as columns.

`body` is the document as JSON. A column repeats a field only so that an index can be made of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pydantic_core

from leasehold.domain.collections import Collection
from leasehold.domain.document import Document
from leasehold.errors import StoreVersionError

SCHEMA_VERSION: Final = 1


def prepare(
    connection: sqlite3.Connection, store: str, collections: Mapping[str, Collection]
) -> None:
    """Make the tables that are missing, in one transaction.

    Raises:
        StoreVersionError: a newer Leasehold wrote the file; nothing was changed.
    """
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > SCHEMA_VERSION:
        raise StoreVersionError(store=store, found=found, known=SCHEMA_VERSION)
    if found == SCHEMA_VERSION:
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    for collection in collections.values():
        for statement in _tables(collection):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _tables(collection: Collection) -> list[str]:
    columns = "".join(f', "{field}"' for field in collection.fields)
    table = (
        f'CREATE TABLE IF NOT EXISTS "{collection.name}" (parent TEXT NOT NULL, id TEXT NOT NULL, '
        f"version INTEGER NOT NULL, body TEXT NOT NULL{columns}, PRIMARY KEY (parent, id))"
    )
    return [table, *(_index(collection.name, fields) for fields in collection.indexes)]


def _index(table: str, fields: tuple[str, ...]) -> str:
    """An index on the fields, then the id for ties; documents without the last are not in it."""
    columns = ", ".join(f'"{field}"' for field in fields)
    name = "_".join((table, *fields))
    return (
        f'CREATE INDEX IF NOT EXISTS "{name}" ON "{table}" (parent, {columns}, id) '
        f'WHERE "{fields[-1]}" IS NOT NULL'
    )


def split(collection: str) -> tuple[str, str]:
    """Return table and parent of a collection's path: `runs/r-1/trace` is (`trace`, `runs/r-1`)."""
    parent, _, table = collection.rpartition("/")
    return table, parent


def to_body(document: Document) -> str:
    """Return the document as JSON text; times as RFC 3339."""
    return pydantic_core.to_json(document).decode()


def to_column(value: Any) -> Any:
    """Return a field's value as an index compares it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, list | tuple):
        return pydantic_core.to_json(value).decode()
    return value


def same_value(stored: Any, new: Any) -> bool:
    """Return whether a field keeps its value; what was read has its times as text."""
    if stored is new:
        return True
    if isinstance(new, datetime) and isinstance(stored, str):
        return datetime.fromisoformat(stored) == new
    return bool(to_column(stored) == to_column(new))
