"""The overrides port: what people set for step types, as this process knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from leasehold.domain.override import StoredOverride


class Overrides(Protocol):
    """The overrides of a store, at most 10 s old where they are refreshed.

    Transitions stay pure: they get what was read before them.
    """

    def refresh(self) -> None:
        """Read them, unless that was done less than 10 s ago; call it before what may dispatch.

        A store that does not answer is no failure: those that are known stay in force.
        """
        ...

    def find(self, step_type: str) -> StoredOverride | None:
        """Return that of a step type as it is known, by the store's time now; None: there is none.

        It does not read.
        """
        ...

    def read(self) -> Sequence[StoredOverride]:
        """Read them at once, and return all, by their ids.

        Raises:
            StoreUnavailableError: the store did not answer; those that are known stay in force.
        """
        ...
