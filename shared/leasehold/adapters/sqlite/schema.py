"""How documents lie in the file: a table a kind of collection, its indexed fields as columns.

`body` is the document as JSON. A column repeats a field only so that an index can be made of it.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Mapping
from typing import Final

from leasehold.adapters.sqlite.rows import to_column
from leasehold.domain.collections import Collection
from leasehold.errors import StoreUnavailableError, StoreVersionError

#: 3: runs have a `position`. Versions before it were never released, and are not read.
SCHEMA_VERSION: Final = 3

#: Each table with each of its columns.
_COLUMNS: Final = (
    "SELECT tables.name, columns.name FROM sqlite_master AS tables, "
    "pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
)

#: "LHLD" in the header of the file: it tells a store from the database of another program.
APPLICATION_ID: Final = 0x4C484C44

#: One statement, so that all three are of one moment while another process makes the tables.
_WHOSE: Final = """
SELECT user_version, application_id, EXISTS (SELECT 1 FROM sqlite_master)
FROM pragma_user_version, pragma_application_id
"""

#: Some five seconds in all; the process that holds the lock needs milliseconds.
_WAL_TRIES: Final = 200


def prepare(
    connection: sqlite3.Connection, store: str, collections: Mapping[str, Collection]
) -> None:
    """Make the tables and indexes that are missing, in one transaction.

    Raises:
        StoreVersionError: another Leasehold wrote the file; nothing was changed.
        StoreUnavailableError: another program wrote it, or it cannot be put into WAL; nothing
            was changed.
    """
    has_version = is_prepared(connection, store)
    if not has_version:
        keep_track_of_pages(connection)
    _enter_wal(connection, store)
    if has_version and _has_tables(connection, collections):
        return
    connection.execute("BEGIN IMMEDIATE")
    if not (is_prepared(connection, store) and _has_tables(connection, collections)):
        found = set(connection.execute(_COLUMNS))
        for collection in collections.values():
            connection.execute(_table(collection))
            if (collection.name, "id") in found:
                _add_columns(connection, collection, found)
            for fields in collection.indexes:
                connection.execute(_index(collection, fields))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def is_prepared(connection: sqlite3.Connection, store: str) -> bool:
    """Return whether the file has our tables; False for an unused one. Only reads.

    Raises:
        StoreVersionError: another Leasehold wrote the file.
        StoreUnavailableError: another program wrote it.
    """
    version, application, has_tables = connection.execute(_WHOSE).fetchone()
    if application == APPLICATION_ID and version == SCHEMA_VERSION:
        return True
    if version > SCHEMA_VERSION or application == APPLICATION_ID:
        is_newer = version > SCHEMA_VERSION
        remedy = "Upgrade Leasehold" if is_newer else "It is older than 0.1.0: delete the file"
        raise StoreVersionError(store=store, found=version, known=SCHEMA_VERSION, remedy=remedy)
    if version or application or has_tables:
        raise StoreUnavailableError(store=store, problem="it is another program's database")
    return False


def _has_tables(connection: sqlite3.Connection, collections: Mapping[str, Collection]) -> bool:
    """Return whether each collection has its table, with a column for each indexed field.

    A new collection needs no new version, and neither does a new index: a process that does not
    know it leaves it alone.
    """
    found = set(connection.execute(_COLUMNS))
    wanted = {(one.name, field) for one in collections.values() for field in ("id", *one.fields)}
    return wanted <= found


def _add_columns(
    connection: sqlite3.Connection, collection: Collection, found: set[tuple[str, str]]
) -> None:
    """Add the columns that the table of an earlier version does not have, with their values."""
    name = collection.name
    for field in collection.fields:
        if (name, field) in found:
            continue
        connection.execute(f'ALTER TABLE "{name}" ADD COLUMN "{field}"')
        value = to_column if field not in collection.arrays else str
        rows = connection.execute(
            f"SELECT rowid, json_extract(body, '$.{field}') FROM \"{name}\""  # noqa: S608 - ours
        ).fetchall()
        connection.executemany(
            f'UPDATE "{name}" SET "{field}" = ? WHERE rowid = ?',  # noqa: S608 - ours
            [(value(found), row) for row, found in rows if found is not None],
        )


def _enter_wal(connection: sqlite3.Connection, store: str) -> None:
    """Switch the file to WAL, unless it is: a copy made by VACUUM INTO has another journal mode.

    Where several do so at once SQLite answers "locked" without waiting, whatever the timeout:
    each of them holds what the others need.
    """
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    problem = "SQLite keeps it"
    for _ in range(_WAL_TRIES):
        if mode == "wal":
            return
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            problem = str(error)
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                break
            time.sleep(random.uniform(0.0, 0.05))  # noqa: S311 - no secret
    problem = (
        f"it is in journal mode {mode!r} and cannot be put into WAL ({problem}); close what has "
        "it open, another program or an older copy of this one, and see that it can be written"
    )
    raise StoreUnavailableError(store=store, problem=problem)


def _table(collection: Collection) -> str:
    columns = "".join(f', "{field}"' for field in collection.fields)
    return (
        f'CREATE TABLE IF NOT EXISTS "{collection.name}" (parent TEXT NOT NULL, id TEXT NOT NULL, '
        f"version INTEGER NOT NULL, body TEXT NOT NULL{columns}, PRIMARY KEY (parent, id))"
    )


def _index(collection: Collection, fields: tuple[str, ...]) -> str:
    """An index on the fields, then the id for ties; documents without one are not in it.

    Nor are those for which a rare field is false. A file of before has them: it serves as well.
    """
    columns = ", ".join(f'"{field}"' for field in fields)
    all_there = " AND ".join(
        f'"{field}" = 1' if field in collection.rare else f'"{field}" IS NOT NULL'
        for field in fields
    )
    table, name = collection.name, "_".join((collection.name, *fields))
    return (
        f'CREATE INDEX IF NOT EXISTS "{name}" ON "{table}" (parent, {columns}, id) '
        f"WHERE {all_there}"
    )


# Free pages of the file: what was deleted leaves them, and they are given back in small parts.
#
# `VACUUM` would write the whole file anew, and block every process meanwhile. A file that is
# made with `auto_vacuum = INCREMENTAL` knows where each page belongs, so its last pages can take
# the places of free ones, a few at a time.


#: How many pages are moved in one transaction: 4 MiB, some tens of milliseconds.
_MAX_PAGES_MOVED: Final = 1000

_INCREMENTAL: Final = 2


def keep_track_of_pages(connection: sqlite3.Connection) -> None:
    """Have a file that is made now know where each page belongs; any other stays as it is."""
    connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")


def give_back_pages(connection: sqlite3.Connection) -> bool:
    """Shorten the file by some of its free pages; return whether there are more."""
    if _number(connection, "auto_vacuum") != _INCREMENTAL:
        return False
    free = _number(connection, "freelist_count")
    for _ in range(min(free, _MAX_PAGES_MOVED)):
        connection.execute("PRAGMA incremental_vacuum(1)")  # of a greater number, Python does one
    return free > _MAX_PAGES_MOVED


def checkpoint_log(connection: sqlite3.Connection) -> None:
    """Write the log into the file, which gets shorter then, without waiting for readers."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    (number,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(number)
