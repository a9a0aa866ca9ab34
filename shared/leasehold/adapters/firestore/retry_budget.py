"""The retry budget of one call: how far apart its tries are, and when it gives up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar

from leasehold.domain.retry import doubling
from leasehold.errors import StoreUnavailableError
from leasehold.ports.clock import Clock

T = TypeVar("T")

#: A call gives up after this long, all its tries together.
CALL_DEADLINE_S: Final = 20.0
#: One RPC is not waited for longer.
RPC_TIMEOUT_S: Final = 5.0

#: How long the waits are at most.
_WAITS: Final = doubling(timedelta(seconds=0.015), timedelta(seconds=1))


class AnotherTryError(Exception):
    """This try failed, or its result is unknown; the next one may succeed."""


class LostAnswerError(AnotherTryError):
    """The store did not say what became of a request: it may have happened."""


class RefusedError(AnotherTryError):
    """A commit was refused, because a document was not at the version expected."""


class RetryBudget:
    """The time that all tries of one call share.

    Args:
        clock: measures the time that passes.
        store: how errors name the store.
        deadline_s: how long all tries together may take.
    """

    def __init__(self, clock: Clock, store: str, deadline_s: float) -> None:
        self._clock = clock
        self._store = store
        self._seconds = deadline_s
        self._end = clock.monotonic() + deadline_s
        self._failures = 0

    def run(self, once: Callable[[], T]) -> T:
        """Return what `once` returns, as soon as it does.

        Raises:
            StoreUnavailableError: it still raised AnotherTryError when the time was over.
        """
        while True:
            try:
                return once()
            except AnotherTryError as error:
                self._pause(error)

    def timeout(self) -> float:
        """Return how many seconds the next RPC may take."""
        return max(0.01, min(RPC_TIMEOUT_S, self._end - self._clock.monotonic()))

    def _pause(self, error: AnotherTryError) -> None:
        """Wait for a random time, so that those who collided do not meet again."""
        self._failures += 1
        wait = random.uniform(0.0, _WAITS.wait_s(self._failures))  # noqa: S311 - no secret
        if self._clock.monotonic() + wait >= self._end:
            problem = f"no success within {self._seconds:g} s; at the last try: {error}"
            raise StoreUnavailableError(store=self._store, problem=problem) from error
        time.sleep(wait)
