"""Group commit: changes that come at the same time share one transaction, and one sync.

The first thread that gets the writer's lock commits for all that wait by then; the others find
their result when they get it. A thread that is alone commits alone, without any hand-over.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, ParamSpec, TypeVar

from leasehold.errors import StoreUnavailableError

T = TypeVar("T")
P = ParamSpec("P")


#: How long a change waits for another process's transaction.
BUSY_TIMEOUT_S: Final = 30.0
#: The longest wait at a time: Python hears a signal only between two calls of SQLite.
BUSY_STEP_S: Final = 0.25


def patiently(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a call of SQLite returns, once no other process has the file locked.

    Raises:
        sqlite3.Error: as the call; `SQLITE_BUSY` after `BUSY_TIMEOUT_S`, and nothing was done.
    """
    end = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            return call(*args, **kwargs)
        except sqlite3.OperationalError as error:
            is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_locked or time.monotonic() >= end:
                raise


_LOOK_EVERY_S: Final = 0.2
#: SQLite would write on into a file that no other process finds, and that ends with this one.
_MOVED: Final = (
    "its file was moved, deleted or replaced while it was in use; put that file back, or restart "
    "this process"
)


class _Job(Generic[T]):
    """One change, and what became of it: nothing durable, until that is known."""

    __slots__ = ("durable", "error", "is_atomic", "result", "taken", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], T], is_atomic: bool) -> None:
        self.work = work
        self.is_atomic = is_atomic
        self.result: T  # of what did not raise
        self.error: BaseException | None = None
        self.taken = False
        self.durable = False

    def run(self, connection: sqlite3.Connection) -> bool:
        """Return whether it did not raise."""
        self.error = None  # of a time before, which was undone
        try:
            self.result = self.work(connection)
        except sqlite3.Error:
            raise  # the transaction itself is in doubt, not this change alone
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread it belongs to
            self.error = error
            return False
        return True


class _Process:
    """The process that this is: the system would be asked for it at each change and read."""

    def __init__(self) -> None:
        self.note()
        os.register_at_fork(after_in_child=self.note)

    def note(self) -> None:
        """Note it; a forked one is another."""
        self.pid = os.getpid()


_THIS: Final = _Process()


class GroupCommit:
    """Runs changes on one connection, in as few transactions as their arrival allows.

    Args:
        connection: used by one thread at a time.
        store: how errors name the store.
        is_in_place: whether the file of the connection is still the one that all others find.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        store: str,
        is_in_place: Callable[[], bool] = lambda: True,
    ) -> None:
        self._connection = connection
        self._store = store
        self._is_in_place = is_in_place
        self._look_at = 0.0
        self._process = _THIS.pid
        self._writer = threading.Lock()
        self._waiting: deque[_Job[Any]] = deque()  # any thread appends, the writer takes

    def run(self, work: Callable[[sqlite3.Connection], T], *, is_atomic: bool = False) -> T:
        """Run `work` in a transaction and return its result once that is durable.

        An error of `work` undoes its own writes, and none of its neighbours'.

        Args:
            work: executes statements; it may be called once more, when the first time is undone.
            is_atomic: it is one statement, which is a transaction by itself where it is alone:
                each call of SQLite releases Python's lock, and many threads wait for that.

        Raises:
            StoreUnavailableError: the transaction is not known to have committed.
        """
        self.check_process()
        job = _Job(work, is_atomic)
        self._waiting.append(job)
        with self._writer:
            if not job.taken:
                self._commit(self._take())
        if job.error is not None:
            raise job.error
        if not job.durable:
            raise StoreUnavailableError(store=self._store, problem="the writer was interrupted")
        return job.result

    def close(self) -> None:
        """Close the connection once no change uses it: to close one in use ends the process."""
        with self._writer:
            self._connection.close()

    def check_process(self) -> None:
        """Refuse to work in a forked child: SQLite's locks do not follow a connection there."""
        if _THIS.pid != self._process:
            problem = f"process {self._process} opened it; a forked process must open its own"
            raise StoreUnavailableError(store=self._store, problem=problem)

    def _take(self) -> list[_Job[Any]]:
        batch = []
        while self._waiting:
            job = self._waiting.popleft()
            job.taken = True
            batch.append(job)
        return batch

    def _commit(self, batch: list[_Job[Any]]) -> None:
        try:
            keep = self._is_kept(batch)
        except BaseException as error:
            self._refuse(batch, error)
            if not isinstance(error, sqlite3.Error):
                raise
            return
        if keep:
            for job in batch:
                job.durable = True
        elif len(batch) > 1:
            for job in batch:
                self._commit([job])

    def _is_kept(self, batch: list[_Job[Any]]) -> bool:
        """Run the changes in one transaction; return False where it was rolled back."""
        self._check_place()
        if len(batch) == 1 and batch[0].is_atomic:
            patiently(batch[0].run, self._connection)
            return True
        patiently(self._connection.execute, "BEGIN IMMEDIATE")
        keep = all(map(self._is_whole, batch))
        self._connection.execute("COMMIT" if keep else "ROLLBACK")
        return keep

    def _check_place(self) -> None:
        """Refuse to write into a file that is not found any more; what is written would be lost.

        So is what was written just before it was deleted, so that one look for many changes will
        do: each look is a call of the system.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        if not self._is_in_place():
            raise sqlite3.OperationalError(_MOVED)
        self._look_at = now + _LOOK_EVERY_S

    def _is_whole(self, job: _Job[Any]) -> bool:
        """Run the change; return False where it raised and left a part of what it writes.

        Most that raise have written nothing, so that there is nothing to undo. The few others
        are undone with their batch, whose changes get a transaction each then: cheaper than a
        savepoint for each change that there ever is.
        """
        before = self._connection.total_changes
        return job.run(self._connection) or self._connection.total_changes == before

    def _refuse(self, batch: list[_Job[Any]], error: BaseException) -> None:
        """Nothing of the batch is known to be durable: each of its changes gets an error."""
        problem = str(error) or type(error).__name__
        for job in batch:
            refusal = StoreUnavailableError(store=self._store, problem=problem)
            refusal.__cause__ = error
            job.error = job.error or refusal
        with contextlib.suppress(sqlite3.Error):  # what fails here fails the next BEGIN as well
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
