"""The documents port on SQLite: WAL, synchronous=FULL, many threads and processes on one file."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from leasehold.adapters.sqlite.group_commit import (
    BUSY_STEP_S,
    BUSY_TIMEOUT_S,
    GroupCommit,
    patiently,
)
from leasehold.adapters.sqlite.rows import (
    BODY,
    changed_columns,
    counted,
    document_in,
    documents_of,
    insert,
    present_columns,
    read_text,
    to_body,
    update,
)
from leasehold.adapters.sqlite.schema import checkpoint_log, give_back_pages, is_prepared, prepare
from leasehold.domain.collections import COLLECTIONS, Collection
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref, Write
from leasehold.errors import DocumentExistsError, StoreUnavailableError, VersionConflictError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, Query, Snapshot

#: Held while a file is made: SQLite's locks on a file end when its process closes it anywhere.
_MAKING: Final = threading.Lock()


class SqliteDocuments:
    """A store in one file. Its time is the machine's clock. A forked process opens its own.

    Args:
        path: the file; it and its folder are made if they are not there, for their owner alone.
            The permissions of existing files are left as they are.
        clock: the store's time.
        collections: what the store keeps, by name.

    Raises:
        StoreUnavailableError: the file cannot be opened or written, is no database, or is
            another program's. It is left as it was.
        StoreVersionError: a newer Leasehold wrote it.
    """

    def __init__(
        self, path: Path, clock: Clock, collections: Mapping[str, Collection] = COLLECTIONS
    ) -> None:
        self._path = path
        self._file = path.absolute()  # SQLite reads a bare `file:x` as a URI
        self._clock = clock
        self._collections = collections
        self._idle: list[sqlite3.Connection] = []
        self._is_closed = False
        self._close_writer: Callable[[], None] = lambda: None
        made = [folder for folder in self._file.parents if not os.path.lexists(folder)]
        try:
            for folder in reversed(made):
                folder.mkdir(mode=0o700, exist_ok=True)
            self._check_log()
            _make_private(self._file)
            writer = self._connect()
            self._close_writer = writer.close
            prepare(writer, str(path), collections)
            writer.execute(f"PRAGMA busy_timeout = {BUSY_STEP_S * 1000:.0f}")
            patiently(writer.execute, "BEGIN IMMEDIATE")  # fails where it is read-only
            writer.execute("ROLLBACK")
            self._identity = _identity_of(self._file)  # it is open by now
        except (sqlite3.Error, OSError) as error:
            self.close()
            _remove_empty(made)
            raise self._refusal(error) from error
        except BaseException:
            self.close()
            _remove_empty(made)
            raise
        self._commits = GroupCommit(writer, str(path), self._is_in_place)
        self._close_writer = self._commits.close

    def transact(
        self,
        ref: Ref,
        decide: DecideDocument[Answer],
        *,
        if_version: Snapshot | None = None,
        is_new: bool = False,
        now: datetime | None = None,  # noqa: ARG002 - its time is here
        in_transaction: bool = False,  # noqa: ARG002 - each change is a transaction here
        within: float | None = None,  # noqa: ARG002 - there is no network between
    ) -> Committed[Answer]:
        """Read `ref`, decide, write: one transaction, shared with other callers.

        What is decided on a snapshot, or on nothing, is decided before: the version tells whether
        it still holds.
        """
        if is_new:
            try:
                return self._change_known(ref, None, decide)
            except DocumentExistsError:
                pass  # it is there, and decided on as any other
        if if_version is None:
            return self._commits.run(partial(self._change, ref, decide))
        return self._change_known(ref, if_version, decide)

    def get(self, ref: Ref) -> Snapshot | None:
        """Return the document, or None."""
        with self._reading() as connection:
            return self._read(connection, ref)

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return the documents that fit, in the order asked for."""
        kind, parent = self._place(query.collection)
        with self._reading() as connection:
            return [
                self._stamped(Ref(query.collection, id_), document, version)
                for id_, version, document in documents_of(connection, query, kind, parent)
            ]

    def count(self, query: Query, most: int) -> int:
        """Return how many documents fit, up to `most`."""
        kind, parent = self._place(query.collection)
        with self._reading() as connection:
            (count,) = connection.execute(*counted(query, kind, parent, most)).fetchone()
        return int(count)

    def delete(self, ref: Ref, *, if_version: Snapshot | None = None) -> None:
        """Delete the document, if it is there."""
        self._commits.run(partial(self._delete, ref, if_version))

    def delete_all(self, refs: Sequence[Ref]) -> None:
        """Delete these documents, in one transaction."""

        def delete(connection: sqlite3.Connection) -> None:
            for ref in refs:
                self._delete(ref, None, connection)

        if refs:
            self._commits.run(delete)

    def give_back_space(self) -> None:
        """Shorten the file by the pages that are free, some at a time: others write in between.

        A file of a version before keeps them for what is written next.
        """
        while self._commits.run(give_back_pages):
            pass
        with self._reading() as connection:
            checkpoint_log(connection)

    def close(self) -> None:
        """Close all connections; a read that still runs closes its own when it is done.

        To close one in use ends the process, and a background thread may be reading.
        """
        self._is_closed = True
        self._close_writer()
        self._close_idle()

    def _change_known(
        self, ref: Ref, known: Snapshot | None, decide: DecideDocument[Answer]
    ) -> Committed[Answer]:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        write = decide(None if known is None else known.document, now)
        if write.document is None and not write.has_others:
            return Committed(write.answer, known)
        work = partial(self._write, ref, known, write, (now, monotonic))
        return self._commits.run(work, is_atomic=not write.has_others)

    def _delete(
        self, ref: Ref, if_version: Snapshot | None, connection: sqlite3.Connection
    ) -> None:
        version = None if if_version is None else self._version(connection, ref)
        if version is not None and if_version is not None and version != if_version.version:
            raise VersionConflictError(ref=str(ref))
        kind, parent = self._place(ref.collection)
        sql = f'DELETE FROM "{kind.name}" WHERE parent = ? AND id = ?'  # noqa: S608 - a known table
        connection.execute(sql, (parent, ref.id))

    def _change(
        self, ref: Ref, decide: DecideDocument[Answer], connection: sqlite3.Connection
    ) -> Committed[Answer]:
        known = self._read(connection, ref)
        now, monotonic = self._clock.now(), self._clock.monotonic()
        write = decide(None if known is None else known.document, now)
        return self._write(ref, known, write, (now, monotonic), connection)

    def _write(
        self,
        ref: Ref,
        known: Snapshot | None,
        write: Write[Answer],
        at: tuple[datetime, float],
        connection: sqlite3.Connection,
    ) -> Committed[Answer]:
        snapshot = known
        if write.document is not None:
            if known is None:
                version = self._insert(connection, ref, write.document)
            else:
                version = self._update(connection, known, write.document)
            snapshot = Snapshot(ref, write.document, version, *at)
        elif write.creates and known and self._version(connection, ref) != known.version:
            raise VersionConflictError(ref=str(ref))
        if write.has_others:
            for created, document in (write.creates or {}).items():
                self._insert(connection, created, document)
            for put, document in (write.puts or {}).items():
                self._insert(connection, put, document, replaces=True)
        return Committed(write.answer, snapshot)

    def _insert(
        self,
        connection: sqlite3.Connection,
        ref: Ref,
        document: Document,
        *,
        replaces: bool = False,
    ) -> int:
        kind, parent = self._place(ref.collection)
        version = random.getrandbits(62)  # not one that a deleted document of this id had
        columns = present_columns(document, kind)
        values = (parent, ref.id, version, to_body(document), *columns.values())
        try:
            connection.execute(insert(kind.name, tuple(columns), replaces=replaces), values)
        except sqlite3.IntegrityError as error:
            raise DocumentExistsError(ref=str(ref)) from error
        return version

    def _update(self, connection: sqlite3.Connection, known: Snapshot, document: Document) -> int:
        """Write the body and the columns that change, so that only their indexes are touched."""
        kind, parent = self._place(known.ref.collection)
        changed = changed_columns(known.document, document, kind)
        values = (to_body(document), *changed.values(), parent, known.ref.id, known.version)
        if connection.execute(update(kind.name, tuple(changed)), values).rowcount == 0:
            raise VersionConflictError(ref=str(known.ref))
        return int(known.version) + 1

    def _read(self, connection: sqlite3.Connection, ref: Ref) -> Snapshot | None:
        kind, parent = self._place(ref.collection)
        sql = f'SELECT version, {BODY} FROM "{kind.name}" WHERE parent = ? AND id = ?'  # noqa: S608 - known
        row = connection.execute(sql, (parent, ref.id)).fetchone()
        if row is None:
            return None
        version, body = row
        return self._stamped(ref, document_in(connection, kind, (parent, ref.id), body), version)

    def _version(self, connection: sqlite3.Connection, ref: Ref) -> int | None:
        found = self._read(connection, ref)
        return None if found is None else found.version

    def _stamped(self, ref: Ref, document: Document, version: int | None) -> Snapshot:
        return Snapshot(ref, document, version, self._clock.now(), self._clock.monotonic())

    def _place(self, collection: str) -> tuple[Collection, str]:
        """Return kind and parent: `runs/r-1/trace` is (TRACE, `runs/r-1`); or raise KeyError."""
        parent, _, name = collection.rpartition("/")
        return self._collections[name], parent

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection: readers wait neither for the writer nor for each other."""
        self._commits.check_process()
        if self._is_closed:
            raise StoreUnavailableError(store=str(self._path), problem="it was closed")
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        except sqlite3.Error as error:
            raise self._refusal(error) from error
        finally:
            self._idle.append(connection)
            if self._is_closed:
                self._close_idle()

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _check_log(self) -> None:
        """Refuse another program's file that has a log, without moving the log into it.

        A connection that may write does that when it closes; a reader does not. A log without its
        file is refused too: the file was moved away, and SQLite would delete the log.
        """
        log = self._file.with_name(f"{self._file.name}-wal")
        if log.exists():
            if not self._file.exists():
                problem = f"the file is gone and its log is not; bring it back, or delete {log}"
                raise StoreUnavailableError(store=str(self._path), problem=problem)
            address = f"{self._file.as_uri()}?mode=ro"
            with contextlib.closing(
                sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)
            ) as reader:
                is_prepared(reader, str(self._path))

    def _connect(self) -> sqlite3.Connection:
        """Open the file, which is there: one that was moved away is an outage, and not made."""
        try:
            connection = sqlite3.connect(
                f"{self._file.as_uri()}?mode=rw",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self._refusal(error) from error
        try:
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            connection.close()
            raise self._refusal(error) from error
        connection.text_factory = read_text
        return connection

    def _is_in_place(self) -> bool:
        """Return whether the file that was opened is still where others open it.

        Its number is not given to another one while it is open.
        """
        try:
            return _identity_of(self._file) == self._identity
        except OSError:
            return False

    def _refusal(self, error: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(store=str(self._path), problem=str(error))


def _identity_of(file: Path) -> tuple[int, int]:
    found = os.stat(file)  # noqa: PTH116 - before each commit: `Path.stat` takes twice as long
    return found.st_dev, found.st_ino


def _make_private(file: Path) -> None:
    """Make the file that SQLite would make for all to read; its log gets the same rights."""
    with _MAKING:
        if not file.exists():
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the folders that were made for a file that is not there now, the innermost first."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
