"""A store's file as it can be read without any change: not even a log is made beside it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from leasehold.adapters.sqlite.rows import documents_of, read_text
from leasehold.adapters.sqlite.schema import is_prepared
from leasehold.domain.collections import COLLECTIONS, Collection
from leasehold.domain.stored import Ref
from leasehold.errors import StoreUnavailableError
from leasehold.frozen import dataclass
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Query, Snapshot

T = TypeVar("T")

_BUSY_TIMEOUT_S: Final = 3.0
#: How many damages are named; with the first of them the file is to be restored anyway.
_MAX_DAMAGES: Final = 3
#: After so many steps of SQLite's machine it is looked at the time.
_STEPS: Final = 10_000

#: How often what changes while it is read is read anew, before that is left to SQLite's locks.
_MAX_READ_TRIES: Final = 3
#: No two writes that are further apart have the same time in a file system.
_TICK_S: Final = 0.02
#: What SQLite says of a file that is damaged; anything else, it says of the machine.
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class _Way(StrEnum):
    """How a file is read, as SQLite has it in addresses, so that nothing beside it is made.

    A process that has a store open has its log's index, `-shm`, too: without one, none has.
    """

    #: As a file that does not change: else SQLite would make a log.
    ALONE = "mode=ro&immutable=1"
    #: With a log, as of a backup: in a copy, as SQLite would make the index, or delete the log.
    ALONE_WITH_LOG = "mode=rw"
    #: With the entries of the log, by the locks that all have; its index is not written.
    AMONG_OTHERS = "mode=ro&readonly_shm=1"
    #: The same, where the index has to be written first.
    AS_OTHERS = "mode=ro"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a file was before it was read; what is read without locks holds if it still is so."""

    way: _Way
    #: Of the file and its log: inode, size and time; nothing where locks are held.
    versions: tuple[tuple[int, int, int] | None, ...] = ()

    def wait(self) -> None:
        """Wait until a further write has another time than the last one."""
        newest = max((version[2] for version in self.versions if version), default=0)
        if 0 <= time.time_ns() - newest < _TICK_S * 1e9:
            time.sleep(_TICK_S)


class SqliteReader:
    """Reads the file of a store while others write it.

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
        #: SQLite has the log beside the file, not beside a link to it.
        self._file = Path(os.path.realpath(path))
        self._clock = clock
        self._collections = collections
        self._reading = threading.Lock()
        self._read(self._check_own)

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return the documents that fit, as the store itself would; none, where it has no table."""
        kind = self._collections[query.collection]

        def found(connection: sqlite3.Connection) -> list[Snapshot]:
            if not _has_table(connection, kind.name):
                return []
            now, monotonic = self._clock.now(), self._clock.monotonic()
            return [
                Snapshot(Ref(query.collection, id_), document, version, now, monotonic)
                for id_, version, document in documents_of(connection, query, kind, "")
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
                rows = connection.execute(f"PRAGMA quick_check({_MAX_DAMAGES})").fetchall()
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    return [], False
                if error.sqlite_errorcode & 0xFF not in _DAMAGE:
                    raise
                return [str(error)], True
            return [str(row[0]) for row in rows if row[0] != "ok"], True

        return self._read(found)

    def _check_own(self, connection: sqlite3.Connection) -> None:
        """Refuse a file of another program; one that is damaged is ours as far as can be known."""
        try:
            is_prepared(connection, str(self._path))
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    def _read(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Read anew what another process began, or ceased, to write meanwhile."""
        with self._reading:
            for _ in range(_MAX_READ_TRIES):
                seen = self._seen()
                seen.wait()
                try:
                    result = self._read_so(seen.way, call)
                except StoreUnavailableError:
                    if self._seen() == seen:
                        if seen.way is not _Way.AMONG_OTHERS:
                            raise
                        break
                else:
                    if self._seen() == seen:
                        return result
            return self._read_so(_Way.AS_OTHERS, call)

    def _seen(self) -> _Seen:
        """Return how the file is read, by what lies beside it, and what it is now."""
        file, log = _version(self._file), _version(self._beside("-wal"))
        if log is not None and self._beside("-shm").exists():
            return _Seen(_Way.AMONG_OTHERS)
        has_log = log is not None and log[1] > 0
        return _Seen(_Way.ALONE_WITH_LOG if has_log else _Way.ALONE, (file, log))

    def _beside(self, end: str) -> Path:
        return self._file.with_name(f"{self._file.name}{end}")

    def _read_so(self, way: _Way, call: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with (
                self._copied()
                if way is _Way.ALONE_WITH_LOG
                else contextlib.nullcontext(self._file) as file,
                contextlib.closing(
                    sqlite3.connect(f"{file.as_uri()}?{way}", uri=True, timeout=_BUSY_TIMEOUT_S)
                ) as connection,
            ):
                connection.text_factory = read_text
                return call(connection)
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailableError(store=str(self._path), problem=str(error)) from error

    @contextlib.contextmanager
    def _copied(self) -> Iterator[Path]:
        """Lend a copy of the file and its log, for this user alone.

        Without locks SQLite deletes a log in which it finds nothing when it closes it, even if
        another process has begun one meanwhile; and with them it makes an index beside it.
        """
        with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
            for file in (self._file, self._beside("-wal")):
                shutil.copyfile(file, Path(folder, file.name))
            yield Path(folder, self._file.name)


def _version(file: Path) -> tuple[int, int, int] | None:
    """Return what is another one after each write; None: it is not there."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether there is a table: a file of an earlier version has fewer."""
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(sql, (name,)).fetchone() is not None
