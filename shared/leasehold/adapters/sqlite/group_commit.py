"""Group commit: changes that come at the same time share one transaction, and one sync.

The first thread that gets the writer's lock commits for all that wait by then; the others find
their result when they get it. A thread that is alone commits alone, without any hand-over.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from leasehold.errors import StoreUnavailableError

T = TypeVar("T")


class _Job(Generic[T]):
    """One change, and what became of it."""

    __slots__ = ("error", "finished", "result", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: BaseException | None = None
        self.finished = False

    def run(self, connection: sqlite3.Connection) -> None:
        try:
            self.result = self.work(connection)
        except sqlite3.Error:
            raise  # the transaction itself is in doubt, not this change alone
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread it belongs to
            self.error = error


class GroupCommit:
    """Runs changes on one connection, in as few transactions as their arrival allows.

    Args:
        connection: used by one thread at a time.
        store: how errors name the store.
    """

    def __init__(self, connection: sqlite3.Connection, store: str) -> None:
        self._connection = connection
        self._store = store
        self._writer = threading.Lock()
        self._waiting: list[_Job[Any]] = []
        self._arrival = threading.Lock()

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction and return its result once that is durable.

        What `work` raises undoes what it wrote, and nothing of its neighbours.

        Raises:
            StoreUnavailableError: the transaction did not commit.
        """
        job = _Job(work)
        with self._arrival:
            self._waiting.append(job)
        with self._writer:
            if not job.finished:
                with self._arrival:
                    batch, self._waiting = self._waiting, []
                self._commit(batch)
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    def _commit(self, batch: list[_Job[Any]]) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._run_one(job, alone=len(batch) == 1)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except BaseException as error:
            self._refuse(batch, error)
            if not isinstance(error, sqlite3.Error):
                raise
        finally:
            for job in batch:
                job.finished = True

    def _run_one(self, job: _Job[Any], *, alone: bool) -> None:
        connection = self._connection
        if alone:
            job.run(connection)
            if job.error is not None:
                connection.execute("ROLLBACK")
            return
        connection.execute("SAVEPOINT change")
        job.run(connection)
        if job.error is not None:
            connection.execute("ROLLBACK TO change")
        connection.execute("RELEASE change")

    def _refuse(self, batch: list[_Job[Any]], error: BaseException) -> None:
        """Nothing of the batch is durable: each of its changes is told so."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for job in batch:
            refusal = StoreUnavailableError(store=self._store, problem=str(error))
            refusal.__cause__ = error
            job.error = job.error or refusal
