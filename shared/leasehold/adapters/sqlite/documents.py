"""The documents port on SQLite: WAL, synchronous=FULL, many threads and processes on one file."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pydantic_core

from leasehold.adapters.sqlite.group_commit import GroupCommit
from leasehold.adapters.sqlite.querying import select
from leasehold.adapters.sqlite.schema import prepare, same_value, split, to_body, to_column
from leasehold.domain.collections import COLLECTIONS, Collection
from leasehold.domain.document import Answer, DecideDocument, Document, Ref
from leasehold.errors import DocumentExistsError, StoreUnavailableError, VersionConflictError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, Query, Snapshot

#: How long a change waits for another process's transaction.
BUSY_TIMEOUT_S: Final = 30.0


class SqliteDocuments:
    """A store in one file. Its time is the machine's clock.

    Args:
        path: the file; it and its folder are made if they are not there.
        clock: the store's time.
        collections: what the store keeps, by name.

    Raises:
        StoreUnavailableError: the file cannot be opened or written, or is no database.
        StoreVersionError: a newer Leasehold wrote it.
    """

    def __init__(
        self, path: Path, clock: Clock, collections: Mapping[str, Collection] = COLLECTIONS
    ) -> None:
        self._path = path
        self._clock = clock
        self._collections = collections
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        with self._told():
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = self._connect()
            prepare(writer, str(path), collections)
            writer.execute("BEGIN IMMEDIATE")  # fails here where the file cannot be written
            writer.execute("ROLLBACK")
        self._commits = GroupCommit(writer, str(path))

    def transact(
        self, ref: Ref, decide: DecideDocument[Answer], *, if_version: Snapshot | None = None
    ) -> Committed[Answer]:
        """Read `ref`, decide, write: one transaction, shared with whoever comes at once."""
        return self._commits.run(partial(self._change, ref, decide, if_version))

    def get(self, ref: Ref) -> Snapshot | None:
        """Return the document, or None."""
        with self._told():
            return self._read(self._reader(), ref)

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return the documents that fit, in the order asked for."""
        table, parent = split(query.collection)
        sql, values = select(query, self._collections[table], parent)
        with self._told():
            rows = self._reader().execute(sql, values).fetchall()
        return [self._snapshot(Ref(query.collection, id_), *row) for id_, *row in rows]

    def delete(self, ref: Ref) -> None:
        """Delete the document, if it is there."""
        table, parent = split(ref.collection)
        sql = f'DELETE FROM "{table}" WHERE parent = ? AND id = ?'  # noqa: S608 - a known table
        self._commits.run(lambda connection: connection.execute(sql, (parent, ref.id)).close())

    def close(self) -> None:
        """Close all connections; no other call may run or follow."""
        while self._open:
            self._open.pop().close()

    def _change(
        self,
        ref: Ref,
        decide: DecideDocument[Answer],
        known: Snapshot | None,
        connection: sqlite3.Connection,
    ) -> Committed[Answer]:
        current = known or self._read(connection, ref)
        write = decide(None if current is None else current.document, self._clock.now())
        for created, document in (write.creates or {}).items():
            self._insert(connection, created, document)
        if write.document is None:
            return Committed(write.answer, current)
        if current is None:
            version = self._insert(connection, ref, write.document)
        else:
            version = self._update(connection, current, write.document)
        return Committed(write.answer, self._stamped(ref, write.document, version))

    def _insert(self, connection: sqlite3.Connection, ref: Ref, document: Document) -> int:
        table, parent = split(ref.collection)
        fields = {f: to_column(document.get(f)) for f in self._collections[table].fields}
        names = "".join(f', "{field}"' for field in fields)
        marks = ", ?" * len(fields)
        sql = f'INSERT INTO "{table}" (parent, id, version, body{names}) VALUES (?, ?, 1, ?{marks})'  # noqa: S608
        try:
            connection.execute(sql, (parent, ref.id, to_body(document), *fields.values()))
        except sqlite3.IntegrityError as error:
            raise DocumentExistsError(ref=str(ref)) from error
        return 1

    def _update(self, connection: sqlite3.Connection, known: Snapshot, document: Document) -> int:
        """Write the body and the columns that change, so that only their indexes are touched."""
        table, parent = split(known.ref.collection)
        changed = {
            field: to_column(document.get(field))
            for field in self._collections[table].fields
            if not same_value(known.document.get(field), document.get(field))
        }
        names = "".join(f', "{field}" = ?' for field in changed)
        sql = (
            f'UPDATE "{table}" SET version = version + 1, body = ?{names} '  # noqa: S608
            "WHERE parent = ? AND id = ? AND version = ?"
        )
        values = (to_body(document), *changed.values(), parent, known.ref.id, known.version)
        if connection.execute(sql, values).rowcount == 0:
            raise VersionConflictError(ref=str(known.ref))
        return int(known.version) + 1

    def _read(self, connection: sqlite3.Connection, ref: Ref) -> Snapshot | None:
        table, parent = split(ref.collection)
        sql = f'SELECT version, body FROM "{table}" WHERE parent = ? AND id = ?'  # noqa: S608
        row = connection.execute(sql, (parent, ref.id)).fetchone()
        return None if row is None else self._snapshot(ref, *row)

    def _snapshot(self, ref: Ref, version: int, body: str) -> Snapshot:
        return self._stamped(ref, pydantic_core.from_json(body), version)

    def _stamped(self, ref: Ref, document: Document, version: int) -> Snapshot:
        return Snapshot(ref, document, version, self._clock.now(), self._clock.monotonic())

    def _reader(self) -> sqlite3.Connection:
        """Return this thread's own connection: readers never wait for the writer."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._open.append(connection)
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Tell what SQLite or the system refuses as the port's error."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailableError(store=str(self._path), problem=str(error)) from error
