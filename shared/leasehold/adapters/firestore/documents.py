"""The documents port on Firestore, in Native mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from leasehold.adapters.firestore.retry_budget import CALL_DEADLINE_S, RetryBudget
from leasehold.domain.stored import Answer, DecideDocument, Ref
from leasehold.errors import VersionConflictError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import PATIENCE, Committed, Query, Snapshot

#: A commit of 10 MiB takes some hundreds of deletions, whatever their names.
_DELETED_AT_ONCE: Final = 300


class FirestoreDocuments:
    """A store in the cloud, or in the emulator that FIRESTORE_EMULATOR_HOST names.

    Its time is Firestore's. The library is imported here, and the connection opened by the first
    call in each process: a server may make the store before it forks.

    Args:
        project: the id of the Google Cloud project.
        database: the database in it; most have one that is called `(default)`.
        clock: this process's monotonic time; also names commits.
        deadline_s: how long one call may take, all its tries together.
        connect: makes the official low-level client in place of the usual way.
    """

    def __init__(
        self,
        project: str,
        database: str,
        clock: Clock,
        *,
        deadline_s: float = CALL_DEADLINE_S,
        connect: Callable[[str, str], Any] | None = None,
    ) -> None:
        from leasehold.adapters.firestore import connection, document_change, structured_query  # noqa: PLC0415

        self._clock = clock
        self._deadline_s = deadline_s
        self._connection = connection.Connection(
            project, database, clock, connect or connection.official_client
        )
        self._change = document_change.DocumentChange
        self._queries = structured_query

    def transact(
        self,
        ref: Ref,
        decide: DecideDocument[Answer],
        *,
        if_version: Snapshot | None = None,
        is_new: bool = False,
        now: datetime | None = None,
        in_transaction: bool = False,
        within: float | None = None,
    ) -> Committed[Answer]:
        """Read `ref`, decide, write.

        These are a read and a commit that holds only where the document was not written in
        between, which may be a transaction's; with a version, the commit alone.
        """
        change = self._change(self._connection, self._clock, self._budget(within), ref, decide)
        if if_version is not None:
            return change.on_version(if_version)
        if is_new and now is not None:  # else a read is what tells the store's time
            return change.on_nothing(now)
        return change.on_what_is_read(in_transaction=in_transaction)

    def get(self, ref: Ref) -> Snapshot | None:
        """Return the document, or None."""
        budget = self._budget()
        (document,) = budget.run(lambda: self._connection.read([ref], budget.timeout()))
        return document.snapshot

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return the documents that fit, in the order asked for."""
        budget = self._budget(query.within)
        message = self._queries.structured(query, self._connection.documents)
        snapshots = budget.run(
            lambda: self._connection.query(query.collection, message, budget.timeout())
        )
        return self._queries.in_order(query, snapshots)

    def count(self, query: Query, most: int) -> int:
        """Return how many documents fit: one read for each 1,000 entries of an index."""
        budget = self._budget(query.within)
        message = self._queries.counted(query, self._connection.documents, most)
        return budget.run(
            lambda: self._connection.count(query.collection, message, budget.timeout())
        )

    def delete(self, ref: Ref, *, if_version: Snapshot | None = None) -> None:
        """Delete the document, if it is there."""
        budget = self._budget()

        def delete() -> None:
            version = None
            if if_version is not None:  # a try before this one may have done it
                (found,) = self._connection.read([ref], budget.timeout())
                if found.snapshot is None:
                    return
                if found.snapshot.version != if_version.version:
                    raise VersionConflictError(ref=str(ref))
                version = if_version.version
            self._connection.delete([ref], budget.timeout(), version)

        budget.run(delete)

    def delete_all(self, refs: Sequence[Ref]) -> None:
        """Delete these documents, as many in each commit as that takes."""
        for start in range(0, len(refs), _DELETED_AT_ONCE):
            budget, some = self._budget(), refs[start : start + _DELETED_AT_ONCE]
            budget.run(lambda: self._connection.delete(some, budget.timeout()))  # noqa: B023 - called at once

    def give_back_space(self) -> None:
        """Do nothing: Firestore bills what is there."""

    def close(self) -> None:
        """Close the connection of this process; the next call opens it again."""
        self._connection.close()

    def _budget(self, within: float | None = None) -> RetryBudget:
        bounds = (self._deadline_s, within, PATIENCE.get())
        seconds = min(bound for bound in bounds if bound is not None)
        return RetryBudget(self._clock, self._connection.name, seconds)
