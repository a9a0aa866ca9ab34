"""A store's file as it can be read without any change: not even a log is made beside it."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from leasehold.adapters.sqlite.querying import select
from leasehold.adapters.sqlite.rows import document_at, read_text
from leasehold.adapters.sqlite.schema import is_prepared
from leasehold.domain.collections import COLLECTIONS, Collection
from leasehold.domain.document import Ref
from leasehold.errors import StoreUnavailableError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Query, Snapshot

T = TypeVar("T")

_BUSY_TIMEOUT_S: Final = 3.0
#: How many damages are named; with the first of them the file is to be restored anyway.
_MOST: Final = 3
#: After so many steps of SQLite's machine it is looked at the time.
_STEPS: Final = 10_000

#: How a log begins, and the bytes before its first page.
_LOG_MAGIC: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEADER: Final = 32
_PAGE_HEADER: Final = 24


class _Way(StrEnum):
    """How a file is read, as SQLite has it in addresses, so that nothing beside it is made.

    Who has a store open has its log's index, `-shm`, too: without one, nobody has.
    """

    #: As a file that does not change: else SQLite would make a log.
    ALONE = "mode=ro&immutable=1"
    #: With a log, as of a backup: no lock is needed, and the index of the log is in memory alone.
    ALONE_WITH_LOG = "mode=ro&vfs=unix-none"
    #: With what is in the log, by the locks that all have; its index is not written.
    AMONG_OTHERS = "mode=ro&readonly_shm=1"
    #: The same, where the index has to be written first.
    AS_OTHERS = "mode=ro"


class SqliteReader:
    """Reads the file of a store, whoever writes it meanwhile.

    Args:
        path: the file.
        clock: measures how long a check takes, and says when a document was read.
        collections: what the store keeps, by name.

    Raises:
        StoreUnavailableError: it cannot be read, or is another program's.
        StoreVersionError: a newer Leasehold wrote it.
    """

    def __init__(
        self, path: Path, clock: Clock, collections: Mapping[str, Collection] = COLLECTIONS
    ) -> None:
        self._path = path
        self._file = path.absolute()
        self._clock = clock
        self._collections = collections
        self._reading = threading.Lock()
        self._read(lambda connection: is_prepared(connection, str(path)))

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return the documents that fit, as the store itself would; none, where it has no table."""
        kind = self._collections[query.collection]
        sql, values = select(query, kind, "")

        def found(connection: sqlite3.Connection) -> list[Snapshot]:
            if not _has_table(connection, kind.name):
                return []
            now, monotonic = self._clock.now(), self._clock.monotonic()
            rows = connection.execute(sql, values).fetchall()
            return [
                Snapshot(
                    Ref(query.collection, id_),
                    document_at(
                        connection, kind, ("", id_), body, order_by=query.order_by, column=place
                    ),
                    version,
                    now,
                    monotonic,
                )
                for id_, version, body, place in rows
            ]

        return self._read(found)

    def damages(self, within_s: float) -> tuple[list[str], bool]:
        """Return what SQLite finds damaged, and whether it has looked at the whole file.

        Args:
            within_s: seconds after which it stops looking.
        """
        until = self._clock.monotonic() + within_s

        def found(connection: sqlite3.Connection) -> tuple[list[str], bool]:
            connection.set_progress_handler(lambda: self._clock.monotonic() > until, _STEPS)
            try:
                rows = connection.execute(f"PRAGMA quick_check({_MOST})").fetchall()
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    return [], False
                return [str(error)], True
            return [str(row[0]) for row in rows if row[0] != "ok"], True

        return self._read(found)

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    def _read(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Read once more what another process began, or ceased, to write meanwhile."""
        with self._reading:
            way = self._way()
            try:
                result = self._read_so(way, call)
            except StoreUnavailableError:
                if self._way() is way and way is not _Way.AMONG_OTHERS:
                    raise
            else:
                if self._way() is way:
                    return result
            is_used = self._way() is _Way.AMONG_OTHERS
            return self._read_so(_Way.AS_OTHERS if is_used else self._way(), call)

    def _way(self) -> _Way:
        """Return how the file is read, by what lies beside it."""
        log = self._beside("-wal")
        if not log.exists():
            return _Way.ALONE
        if self._beside("-shm").exists():
            return _Way.AMONG_OTHERS
        return _Way.ALONE_WITH_LOG if _has_pages(log) else _Way.ALONE

    def _beside(self, end: str) -> Path:
        return self._file.with_name(f"{self._file.name}{end}")

    def _read_so(self, way: _Way, call: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with contextlib.closing(
                sqlite3.connect(f"{self._file.as_uri()}?{way}", uri=True, timeout=_BUSY_TIMEOUT_S)
            ) as connection:
                connection.text_factory = read_text
                if way is _Way.ALONE_WITH_LOG:
                    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                return call(connection)
        except sqlite3.Error as error:
            raise StoreUnavailableError(store=str(self._path), problem=str(error)) from error


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether there is a table: a file of an earlier version has fewer."""
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(sql, (name,)).fetchone() is not None


def _has_pages(log: Path) -> bool:
    """Return whether a log has a page that belongs to it: one without any is of no use to SQLite.

    It would delete such a file when the connection is closed, even one that only reads.
    https://www.sqlite.org/fileformat2.html#walformat
    """
    if not log.is_file():
        return False
    try:
        with log.open("rb") as file:
            begin = file.read(_LOG_HEADER + _PAGE_HEADER)
    except OSError:
        return True  # SQLite says why it cannot be read
    salts = begin[16:24]
    return begin[:4] in _LOG_MAGIC and salts == begin[_LOG_HEADER + 8 : _LOG_HEADER + 16]
