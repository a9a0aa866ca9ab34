"""The artifacts port: values too large for a document, and the files handlers make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from leasehold.frozen import dataclass


@dataclass(frozen=True, slots=True)
class ArtifactContent:
    """An artifact that is being read.

    Args:
        size: how many bytes it has.
        blocks: all of them, in blocks that fit into memory; StoreUnavailableError breaks it off.
    """

    size: int
    blocks: Iterator[bytes]


class Artifacts(Protocol):
    """Named byte strings; a name is a relative path of plain parts: `runs/r-1/report.md`.

    A name that is a folder of other names (`runs/r-1`) should have no data of its own: not every
    store can keep both.

    What is not there is one thing, a store that does not answer another: a folder that is not
    mounted, a bucket that is gone, a full disk, no permission. That is an outage, and passes.
    """

    def put(self, name: str, data: bytes) -> str:
        """Store `data` whole or not at all, in place of an earlier value; return its address.

        Raises:
            ArtifactNameError: the name is refused, or taken by a folder; nothing was written.
            StoreUnavailableError: it could not be stored. Retryable.
        """
        ...

    def get(self, name: str) -> bytes:
        """Return what was stored.

        Raises:
            ArtifactNotFoundError: nothing has that name. Where the store holds nothing at all, or
                nothing of that kind of its run (`runs/r-1/values`), its details have `is_empty`:
                a caller that knows of an earlier value knows that this is an outage.
            ArtifactNameError, StoreUnavailableError: as above.
        """
        ...

    def open(self, name: str) -> AbstractContextManager[ArtifactContent]:
        """Open an artifact of any size, to be read in blocks.

        A value that replaces it meanwhile is not mixed into it.

        Raises:
            ArtifactNotFoundError, ArtifactNameError, StoreUnavailableError: as above.
        """
        ...

    def exists(self, name: str) -> bool:
        """Return whether something has that name.

        Raises:
            ArtifactNameError, StoreUnavailableError: as above.
        """
        ...

    def try_out(self) -> None:
        """Look whether a file could be stored now, as far as that can be known without one.

        Raises:
            StoreUnavailableError: as above.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete what has that name, and all below it where it is a folder.

        Nothing is there to be deleted: that is fine. A link is deleted, and not what it leads to.

        Raises:
            ArtifactNameError: the name is refused, or leads out of the store; nothing was deleted.
            StoreUnavailableError: it could not be deleted, or not all of it. Retryable.
        """
        ...

    def delete_file(self, name: str) -> None:
        """Delete what has that name alone, in one call; it need not be there, nor stay deleted.

        For files that nothing refers to: where the machine fails at once, it may be there again.

        Raises:
            ArtifactNameError, StoreUnavailableError: as above.
        """
        ...

    def compress(self, prefix: str, texts: Sequence[str] = ()) -> None:
        """Store what lies below the folder `prefix` in less space, where that gains enough.

        Readers see no difference: each artifact keeps its name, its content and its size.
        An artifact whose address stands in one of `texts` keeps its address, too.
        One that is put meanwhile is not overwritten. It may be cut off anywhere, and repeated.

        Raises:
            ArtifactNameError: the name is refused, or leads out of the store.
            StoreUnavailableError: not all of it could be compressed. Retryable.
        """
        ...

    def tidy_up(self) -> None:
        """Delete what interrupted writes left, where a store has such; nothing of it has a name.

        Raises:
            StoreUnavailableError: as above.
        """
        ...

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names below the folder `prefix`, sorted; all names where it is empty.

        Raises:
            ArtifactNameError, StoreUnavailableError: as above.
        """
        ...

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Return the names below the folder `prefix`, sorted, and how many bytes each has.

        Raises:
            ArtifactNameError, StoreUnavailableError: as above.
        """
        ...
