"""One change of a document: read, decide, commit, and find out what became of the commit.

Each commit names itself in what it writes. So a commit whose answer was lost is known by what a
later read finds, and sending it twice stores it once: its preconditions hold one time only.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic

from google.cloud.firestore_v1.types import write as types

from leasehold.adapters.firestore.connection import COMMIT_FIELD, Connection, ReadResult
from leasehold.adapters.firestore.retry_budget import AnotherTryError, RetryBudget
from leasehold.adapters.firestore.values import (
    encode_fields,
    from_version,
    to_datetime,
    to_version,
)
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref, Write
from leasehold.errors import DocumentExistsError, VersionConflictError
from leasehold.frozen import dataclass
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, Snapshot


@dataclass(frozen=True, slots=True)
class _Sent(Generic[Answer]):
    """A commit that was sent: its name, what it was decided on, and what it writes."""

    id: str
    known: Snapshot | None
    write: Write[Answer]


class DocumentChange(Generic[Answer]):
    """One call of `transact`."""

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        budget: RetryBudget,
        ref: Ref,
        decide: DecideDocument[Answer],
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._budget = budget
        self._ref = ref
        self._decide = decide
        self._sent: dict[str, _Sent[Answer]] = {}

    def on_what_is_read(self, *, in_transaction: bool = False) -> Committed[Answer]:
        """Read, decide, and write if the document is still what was read.

        The read takes no lock, also where the write is a transaction's: that is begun once there
        is something to write, and is held to what was read by preconditions. So a process that is
        killed in between leaves no lock behind, which would block the document
        for a minute.
        """
        return self._budget.run(partial(self._read_and_commit, in_transaction=in_transaction))

    def on_version(self, known: Snapshot) -> Committed[Answer]:
        """Decide on `known`, and write if it is still what is stored."""
        passed = timedelta(seconds=self._clock.monotonic() - known.monotonic)
        write = self._decide(known.document, known.read_at + passed)
        if not _is_to_commit(write):
            return Committed(write.answer, known)
        if known.version is None:  # of part of a document: the rest would be gone
            raise VersionConflictError(ref=str(self._ref))
        return self._budget.run(partial(self._send, self._note(known, write)))

    def _send(self, sent: _Sent[Answer]) -> Committed[Answer]:
        try:
            return self._commit(sent)
        except AnotherTryError:
            if committed := self._settle(sent, conflict=True):
                return committed
            raise

    def on_nothing(self, now: datetime) -> Committed[Answer]:
        """Decide on nothing, and write if nothing is there; else decide on what is read."""
        write = self._decide(None, now)
        if not _is_to_commit(write):
            return Committed(write.answer, None)
        try:
            return self._budget.run(partial(self._send, self._note(None, write)))
        except VersionConflictError:
            return self.on_what_is_read()

    def _read_and_commit(self, *, in_transaction: bool) -> Committed[Answer]:
        (current,) = self._connection.read([self._ref], self._budget.timeout())
        if committed := self._recognised([current]):
            return committed
        known = current.snapshot
        write = self._decide(None if known is None else known.document, current.read_at)
        if not _is_to_commit(write):
            return Committed(write.answer, known)
        transaction = self._connection.begin(self._budget.timeout()) if in_transaction else None
        sent = self._note(known, write)
        try:
            return self._commit(sent, transaction)
        except AnotherTryError:
            if write.creates and (committed := self._settle(sent)):
                return committed
            raise  # the next read shows what became of it

    def _note(self, known: Snapshot | None, write: Write[Answer]) -> _Sent[Answer]:
        sent = _Sent(self._clock.new_id(), known, write)
        self._sent[sent.id] = sent
        return sent

    def _commit(self, sent: _Sent[Answer], transaction: bytes | None = None) -> Committed[Answer]:
        writes = [self._main(sent)]
        for ref, document in (sent.write.creates or {}).items():
            writes.append(self._put(ref, document, sent.id, None))
        for ref, document in (sent.write.puts or {}).items():
            writes.append(self._stored(ref, document, sent.id))
        time = self._connection.commit(writes, self._budget.timeout(), transaction)
        return self._committed(sent, time)

    def _committed(self, sent: _Sent[Answer], time: Any) -> Committed[Answer]:
        document = sent.write.document
        if document is None:
            return Committed(sent.write.answer, sent.known)
        monotonic = self._clock.monotonic()
        snapshot = Snapshot(self._ref, document, to_version(time), to_datetime(time), monotonic)
        return Committed(sent.write.answer, snapshot)

    def _main(self, sent: _Sent[Answer]) -> Any:
        """Return the write of the document itself; if it is left alone, a check of its version."""
        version = None if sent.known is None else sent.known.version
        if sent.write.document is not None:
            return self._put(self._ref, sent.write.document, sent.id, version)
        check = types.Write.pb()()
        if version is None:
            check.delete = self._connection.path(self._ref)  # nothing is there, and stays so
        else:
            check.update.name = self._connection.path(self._ref)
            check.update_mask.SetInParent()  # none of its fields
        _expect(check, version)
        return check

    def _put(self, ref: Ref, document: Document, commit: str, version: int | None) -> Any:
        write = self._stored(ref, document, commit)
        _expect(write, version)
        return write

    def _stored(self, ref: Ref, document: Document, commit: str) -> Any:
        write = types.Write.pb()()
        write.update.name = self._connection.path(ref)
        encode_fields(write.update.fields, document)
        write.update.fields[COMMIT_FIELD].string_value = commit
        return write

    def _recognised(self, documents: Sequence[ReadResult]) -> Committed[Answer] | None:
        """Return the commit of ours that a read shows, if it shows one."""
        for one in documents:
            sent = self._sent.get(one.commit or "")
            if sent is None or one.snapshot is None:
                continue
            if one.ref == self._ref:
                return Committed(sent.write.answer, one.snapshot)
            return self._committed(sent, from_version(one.snapshot.version))
        return None

    def _settle(self, sent: _Sent[Answer], *, conflict: bool = False) -> Committed[Answer] | None:
        """Find out what became of a commit without a good answer; None: nothing, so far.

        Raises:
            DocumentExistsError: what it was decided on still stands, and it cannot be written.
            VersionConflictError: it does not stand any more; raised only if `conflict` is set.
        """
        creates = list(sent.write.creates or {})
        documents = self._connection.read([self._ref, *creates], self._budget.timeout())
        if committed := self._recognised(documents):
            return committed
        main, *others = documents
        stands = _version_of(main.snapshot) == _version_of(sent.known)
        if conflict and not stands:
            raise VersionConflictError(ref=str(self._ref))
        for other in others:
            if stands and other.snapshot is not None:
                raise DocumentExistsError(ref=str(other.ref))
        return None


def _is_to_commit(write: Write[Answer]) -> bool:
    return write.document is not None or write.has_others


def _expect(write: Any, version: int | None) -> None:
    """Let the write succeed only if the document has this version; None: does not exist."""
    if version is None:
        write.current_document.exists = False
    else:
        write.current_document.update_time.CopyFrom(from_version(version))


def _version_of(snapshot: Snapshot | None) -> int | None:
    return None if snapshot is None else int(snapshot.version)
