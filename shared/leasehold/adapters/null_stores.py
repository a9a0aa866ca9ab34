"""Null stores: nothing is in them, and what is written to them is gone.

To read a store before anything was written, without making it; and to preview a start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from leasehold.domain.stored import Answer, DecideDocument, Ref
from leasehold.errors import ArtifactNotFoundError
from leasehold.ports.artifacts import ArtifactContent
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, Query, Snapshot


class NullDocuments:
    """The documents port without a store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def transact(
        self,
        ref: Ref,  # noqa: ARG002 - the port's shape
        decide: DecideDocument[Answer],
        *,
        if_version: Snapshot | None = None,  # noqa: ARG002 - the port's shape
        is_new: bool = False,  # noqa: ARG002 - the port's shape
        now: datetime | None = None,  # noqa: ARG002 - the port's shape
        in_transaction: bool = False,  # noqa: ARG002 - the port's shape
        within: float | None = None,  # noqa: ARG002 - the port's shape
    ) -> Committed[Answer]:
        """Decide on nothing, and forget what was decided."""
        return Committed(decide(None, self._clock.now()).answer, None)

    def get(self, ref: Ref) -> Snapshot | None:  # noqa: ARG002 - the port's shape
        """Return None."""
        return None

    def query(self, query: Query) -> Sequence[Snapshot]:  # noqa: ARG002 - the port's shape
        """Return nothing."""
        return ()

    def count(self, query: Query, most: int) -> int:  # noqa: ARG002 - the port's shape
        """Return 0."""
        return 0

    def delete(self, ref: Ref, *, if_version: Snapshot | None = None) -> None:
        """Do nothing: it is not there."""

    def delete_all(self, refs: Sequence[Ref]) -> None:
        """Do nothing: nothing is there."""

    def give_back_space(self) -> None:
        """Do nothing: there is none."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


class NullArtifacts:
    """The artifacts port without a store."""

    def put(self, name: str, data: bytes) -> str:  # noqa: ARG002 - the port's shape
        """Forget the data."""
        return name

    def get(self, name: str) -> bytes:
        """Raise ArtifactNotFoundError."""
        raise ArtifactNotFoundError(name=name, store="a store that is not there")

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[ArtifactContent]:
        """Raise ArtifactNotFoundError."""
        yield ArtifactContent(0, iter((self.get(name),)))

    def exists(self, name: str) -> bool:  # noqa: ARG002 - the port's shape
        """Return False."""
        return False

    def try_out(self) -> None:
        """Do nothing: there is nothing to fail."""

    def delete(self, name: str) -> None:
        """Do nothing: it is not there."""

    def delete_file(self, name: str) -> None:
        """Do nothing: it is not there."""

    def compress(self, prefix: str, texts: Sequence[str] = ()) -> None:
        """Do nothing: nothing is there."""

    def tidy_up(self) -> None:
        """Do nothing: nothing is there."""

    def list(self, prefix: str) -> Sequence[str]:  # noqa: ARG002 - the port's shape
        """Return nothing."""
        return ()

    def sizes(self, prefix: str) -> Mapping[str, int]:  # noqa: ARG002 - the port's shape
        """Return nothing."""
        return {}
