"""A wait for a run, in steps: between two polls the caller sleeps, in a thread or in a task."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, TypeVar

from leasehold.domain.manifest import Manifest
from leasehold.errors import LeaseholdError

# How long a caller tolerates a server or a store that does not answer.


#: How long a caller who waits tolerates a server that does not answer, as in a restart.
OUTAGE_PATIENCE_S: Final = 20.0
#: How soon such a caller asks again.
ASK_AGAIN_S: Final = 0.2

T = TypeVar("T")


class Patience:
    """Tolerates outages, each for a while from the first error in a row on.

    Args:
        seconds: how long; None: `OUTAGE_PATIENCE_S`.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._until: float | None = None

    def tolerate(self, error: LeaseholdError) -> None:
        """Return where the same call may be made again, or raise the error."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + (OUTAGE_PATIENCE_S if self._seconds is None else self._seconds)
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
    """Return `call`, repeated while there is briefly no answer, as in a restart.

    Args:
        call: reads something.
        seconds: how long an outage is tolerated; None: `OUTAGE_PATIENCE_S`.
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


#: Called with the run as it is at first, and whenever it was written since.
OnChange = Callable[[Manifest], object]

#: The first polls follow each other quickly; then each comes after half of the time so far.
_MIN_POLL_S: Final = 0.05
_MAX_POLL_S: Final = 1.0
_SHARE: Final = 0.5


class RunWait:
    """One wait for a run to become idle: it is terminal then, blocked or paused.

    Args:
        read: reads the run.
        run_id: its id.
        timeout: how many seconds to wait at most; None: forever.
        on_change: called by `notify`.
    """

    def __init__(
        self,
        read: Callable[[str], Manifest],
        run_id: str,
        timeout: float | None,
        on_change: OnChange | None,
    ) -> None:
        self._run: Manifest | None = None
        self._read = read
        self._run_id = run_id
        self._timeout = timeout
        self._on_change = on_change
        self._notified: Manifest | None = None
        self._began = time.monotonic()
        self._patience = Patience()

    def poll(self) -> None:
        """Read the run, if it can be read now.

        Raises:
            LeaseholdError: it cannot, and will not be in a moment.
        """
        try:
            self._run = self._read(self._run_id)
            self._patience.reset()
        except LeaseholdError as error:
            self._patience.tolerate(error)

    def notify(self) -> None:
        """Call `on_change` with the run, if the last poll found it changed."""
        if self._on_change is not None and self._run is not None and self._run != self._notified:
            self._notified = self._run
            self._on_change(self._run)

    @property
    def is_over(self) -> bool:
        """Whether the run is idle."""
        return self._run is not None and not self._run.is_moving

    @property
    def run(self) -> Manifest:
        """The run as it was read last; there is one once the wait is over."""
        assert self._run is not None  # noqa: S101 - for mypy
        return self._run

    def delay(self) -> float:
        """Return after how many seconds to poll again.

        Raises:
            TimeoutError: the time is over.
        """
        passed = time.monotonic() - self._began
        left = math.inf if self._timeout is None else self._timeout - passed
        if left <= 0:
            raise TimeoutError(f"{self._state()} after {self._timeout:g} s")
        least = _MIN_POLL_S if self._patience.is_fresh else ASK_AGAIN_S
        return min(max(least, passed * _SHARE), _MAX_POLL_S, left)

    def _state(self) -> str:
        run = self._run
        if run is None:
            return f"run {self._run_id} could not be read"
        return f"run {run.run_id} still moves, {run.state} at step {run.position.step},"
