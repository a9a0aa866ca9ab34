"""How long a caller tolerates a server or a store that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from leasehold.errors import LeaseholdError

#: How long a caller who waits tolerates a server that does not answer, as in a restart.
PATIENCE_S: Final = 20.0
#: How soon such a caller asks again.
ASK_AGAIN_S: Final = 0.2

T = TypeVar("T")


class Patience:
    """Tolerates outages, each for a while: until `PATIENCE_S` after the first error in a row."""

    def __init__(self) -> None:
        self._until: float | None = None

    def tolerate(self, error: LeaseholdError) -> None:
        """Return where the same call may be made again, or raise the error."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + PATIENCE_S
        if not error.retryable or now > self._until:
            raise error

    def reset(self) -> None:
        """Tolerate the next outage as the first: there was an answer."""
        self._until = None

    @property
    def is_fresh(self) -> bool:
        """Whether the last call was answered."""
        return self._until is None


def retry_unreachable(call: Callable[[], T]) -> Callable[[], T]:
    """Return `call`, repeated while nobody answers for a moment, as in a restart."""

    def again() -> T:
        patience = Patience()
        while True:
            try:
                return call()
            except LeaseholdError as error:
                patience.tolerate(error)
            time.sleep(ASK_AGAIN_S)

    return again
