"""How long a caller bears with a server or a store that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from leasehold.errors import LeaseholdError

#: How long a caller who waits bears with a server that does not answer, as in a restart.
PATIENCE_S: Final = 20.0
#: How soon such a caller asks again.
ASK_AGAIN_S: Final = 0.2

T = TypeVar("T")


class Patience:
    """Bears with outages, each for a while: it ends `PATIENCE_S` after the first error in a row."""

    def __init__(self) -> None:
        self._until: float | None = None

    def bear(self, error: LeaseholdError) -> None:
        """Return where the same call may be made again, or raise the error."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + PATIENCE_S
        if not error.retryable or now > self._until:
            raise error

    def renew(self) -> None:
        """Bear with the next outage as with the first: there was an answer."""
        self._until = None

    @property
    def is_fresh(self) -> bool:
        """Whether there is nothing to bear with."""
        return self._until is None


def retry_unreachable(look: Callable[[], T]) -> Callable[[], T]:
    """Return `look`, repeated while nobody answers for a moment, as in a restart."""

    def again() -> T:
        patience = Patience()
        while True:
            try:
                return look()
            except LeaseholdError as error:
                patience.bear(error)
            time.sleep(ASK_AGAIN_S)

    return again
