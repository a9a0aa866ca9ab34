"""The documents port: stores keep, the domain decides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, Protocol

from leasehold.domain.manifest import Manifest
from leasehold.domain.stored import Answer, DecideDocument, Document, Ref
from leasehold.frozen import dataclass

#: The last character there is: behind a prefix it is behind all ids that begin so.
BEHIND_ALL: Final = "\U0010ffff"

#: Seconds after which each call of this context gives up, as where a person waits for a page; None:
#: as late as any. A store that is across a network keeps to it.
PATIENCE: Final[ContextVar[float | None]] = ContextVar("patience", default=None)

_PATH: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class Snapshot(NamedTuple):
    """A document as it was read or written.

    One that cannot be read is an `UnreadableDocument`, so that it hides none of its neighbours.
    `version` belongs to the store and means nothing outside it; None: only some fields were read,
    and nothing may be decided on those. `read_at` is the store's time then, and `monotonic` this
    process's, in seconds: together they tell the store's time later without asking it.
    """

    ref: Ref
    document: Document
    version: Any
    read_at: datetime
    monotonic: float


class Committed(NamedTuple, Generic[Answer]):
    """The answer of a decision whose commit stands, and the document after it (None: none)."""

    answer: Answer
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class Range:
    """A half-open range on one field: `at_least <= value < below`; None leaves a side open."""

    field: str
    at_least: Any = None
    below: Any = None


@dataclass(frozen=True, slots=True)
class Query:
    """Which documents of a collection, in which order.

    Args:
        collection: where to look.
        equal: fields that must have these values.
        id_prefix: only documents whose id begins so; where it is given, they are sorted by id.
        contains: an array field, and a value it must hold.
        range: one range; where it is given, `order_by` must name its field.
        order_by: the field to sort by, documents without it left out; ties are sorted by id.
            None sorts by id alone.
        then_by: a further field to sort by, before the id; documents without it are left out, too.
        descending: the order, of the field and of the ids.
        limit: how many at most.
        after: continue behind this document: its value of `order_by`, as it came or as a
            datetime, and its id. Not where there is a `then_by`.
        within: seconds after which to give up; None: as long as any call may take.
        fields: the paths of the fields to read, such as `status` and `error.code`, beside that of
            `order_by`: documents have no others. The parts of a path are made of letters, digits,
            `_` and `-`. Null fields may be left out. None given: whole documents.
    """

    collection: str
    order_by: str | None = None
    then_by: str | None = None
    equal: Mapping[str, Any] = field(default_factory=dict)
    contains: tuple[str, Any] | None = None
    range: Range | None = None
    descending: bool = False
    limit: int = 50
    after: tuple[Any, str] | None = None
    within: float | None = None
    fields: tuple[str, ...] = ()
    id_prefix: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError where a path is not one. A mistake in the program, not in the data."""
        if self.id_prefix and self.order_by is not None:
            raise ValueError(f"documents whose id begins so are not sorted by {self.order_by}")
        if self.then_by and (self.order_by is None or self.after is not None):
            raise ValueError(f"documents are not sorted by {self.then_by} alone, nor page by page")
        if wrong := [path for path in self.fields if _PATH.fullmatch(path) is None]:
            raise ValueError(f"documents cannot be asked for the fields {wrong}")

    @property
    def sorts(self) -> tuple[str, ...]:
        """The fields that documents are sorted by, before their ids."""
        return tuple(filter(None, (self.order_by, self.then_by)))

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all fields to read, each once; none: whole documents."""
        ordered = (self.order_by,) if self.order_by and self.fields else ()
        return tuple(dict.fromkeys((*ordered, *self.fields)))


class KnownRun(NamedTuple):
    """A run, and the document that it was read from or written to."""

    manifest: Manifest
    snapshot: Snapshot


class Queries(Protocol):
    """The queries of a store that is only read."""

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return the documents that fit, as `Documents.query` does."""
        ...


class Documents(Protocol):
    """A store of documents with transactions over one of them and what it creates.

    Times come back as datetimes or as RFC 3339 text, as the store can; models read either.
    """

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
        """Read `ref`, decide, write: one transaction.

        Args:
            ref: the document to decide on.
            decide: called with the stored document and the store's time; once more for each
                time the store repeats the transaction. Its errors pass; nothing is written.
            if_version: decide on this snapshot, without reading, and write only if it is still
                what is stored.
            is_new: nothing is expected to be there, as its id is random. A store that is spared a
                read by that decides on nothing first, and on what is stored where that was wrong.
            now: with `is_new`, the store's time as far as the caller knows it: a store across a
                network has to be read to tell its own.
            in_transaction: write in a transaction of the store's own, where it tells that from a
                write with a condition: for a lease. No lock is held before the write itself.
            within: seconds after which to give up, where the store is across a network and
                would be asked for longer.

        Raises:
            VersionConflictError: `if_version` was given and is no longer what is stored; nothing
                was written. This comes before DocumentExistsError: creates that were decided on
                an old snapshot may collide because it is old.
            DocumentExistsError: one of the documents to create is there already; nothing was
                written.
            StoreUnavailableError: the transaction is not known to have committed. Retryable.
        """
        ...

    def get(self, ref: Ref) -> Snapshot | None:
        """Return the document, or None.

        Raises:
            StoreUnavailableError: the store did not answer. Retryable.
        """
        ...

    def query(self, query: Query) -> Sequence[Snapshot]:
        """Return the documents that fit, in the order asked for.

        Raises:
            StoreUnavailableError: the store did not answer. Retryable.
        """
        ...

    def count(self, query: Query, most: int) -> int:
        """Return how many documents fit, counted up to `most`: that many, or more, are `most`.

        No document is read, so one that cannot be read counts as well. The limit of the query, its
        order and its fields do not matter, but for a field that it orders by, which they all have.

        Raises:
            StoreUnavailableError: the store did not answer. Retryable.
        """
        ...

    def delete(self, ref: Ref, *, if_version: Snapshot | None = None) -> None:
        """Delete the document, if it is there; what is below it stays.

        Args:
            ref: the document.
            if_version: delete it only if this is still what is stored, or nothing is.

        Raises:
            VersionConflictError: `if_version` was given and is no longer what is stored.
            StoreUnavailableError: the store did not answer. Retryable.
        """
        ...

    def delete_all(self, refs: Sequence[Ref]) -> None:
        """Delete these documents of one collection, whatever is in them, many in a commit.

        Raises:
            StoreUnavailableError: the store did not answer; some may be deleted. Retryable.
        """
        ...

    def give_back_space(self) -> None:
        """Give back what deleted documents took, where the store does not do so itself.

        Others can use the store meanwhile.

        Raises:
            StoreUnavailableError: the store did not answer. Retryable.
        """
        ...

    def close(self) -> None:
        """Release open connections; no other call may run or follow."""
        ...
