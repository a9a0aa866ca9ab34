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
    """Tolerates outages, each for a while from the first error in a row on.

    Args:
        seconds: how long; None: `PATIENCE_S`.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._until: float | None = None

    def tolerate(self, error: LeaseholdError) -> None:
        """Return where the same call may be made again, or raise the error."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + (PATIENCE_S if self._seconds is None else self._seconds)
        if not error.retryable or now > self._until:
            raise error

    def reset(self) -> None:
        """Tolerate the next outage as the first: there was an answer."""
        self._until = None

    @property
    def is_fresh(self) -> bool:
        """Whether the last call was answered."""
        return self._until is None


def retry_unreachable(
    call: Callable[[], T],
    *,
    seconds: float | None = None,
    report: Callable[[LeaseholdError | None], object] = lambda _: None,
) -> Callable[[], T]:
    """Return `call`, repeated while no one answers for a moment, as in a restart.

    Args:
        call: reads something.
        seconds: how long an outage is tolerated; None: `PATIENCE_S`.
        report: given the error when an outage begins, and None when it is over.
    """

    def again() -> T:
        patience = Patience(seconds)
        while True:
            try:
                answer = call()
            except LeaseholdError as error:
                is_first = patience.is_fresh
                patience.tolerate(error)
                if is_first:
                    report(error)
            else:
                if not patience.is_fresh:
                    report(None)
                return answer
            time.sleep(ASK_AGAIN_S)

    return again
