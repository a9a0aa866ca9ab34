"""The artifacts port: values too large for a document, and the files handlers make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Artifacts(Protocol):
    """Named byte strings; a name is a relative path of plain parts: `runs/r-1/report.md`.

    A name that is a folder of other names (`runs/r-1`) should have no data of its own: not every
    store can keep both.
    """

    def put(self, name: str, data: bytes) -> str:
        """Store `data` whole or not at all, in place of what was there; return its address.

        Raises:
            ArtifactNameError: the name is refused; nothing was written.
            StoreUnavailableError: it could not be stored. Retryable.
        """
        ...

    def get(self, name: str) -> bytes:
        """Return what was stored.

        Raises:
            ArtifactNotFoundError: nothing has that name.
            ArtifactNameError, StoreUnavailableError: as above.
        """
        ...

    def exists(self, name: str) -> bool:
        """Return whether something has that name.

        Raises:
            ArtifactNameError, StoreUnavailableError: as above.
        """
        ...

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names below the folder `prefix`, sorted; all names where it is empty.

        Raises:
            ArtifactNameError, StoreUnavailableError: as above.
        """
        ...
