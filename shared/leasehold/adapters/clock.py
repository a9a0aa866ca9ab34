"""The one place that reads the machine's clock and makes random ids."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Final

from leasehold.domain.timestamps import ClockStep
from leasehold.ports.clock import Clock

#: How many ids are drawn at once: each call of the system releases Python's lock, and then
#: waits for it behind all other threads.
_DRAWN: Final = 64

_ids: Final[deque[str]] = deque()  # that were drawn and are not given out
os.register_at_fork(after_in_child=_ids.clear)  # a forked process draws its own


class SystemClock:
    """The machine's clock."""

    skip = None

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the one place

    #: Return seconds that only grow, also while the process is stopped.
    monotonic = staticmethod(time.monotonic)

    def new_id(self) -> str:
        """Return 16 random hexadecimal digits."""
        while True:
            try:
                return _ids.popleft()
            except IndexError:
                drawn = os.urandom(8 * _DRAWN).hex()
                _ids.extend([drawn[at : at + 16] for at in range(0, len(drawn), 16)])


# Steps of the machine's clock, for stores whose time that is.


#: A clock that is off by less cannot be told from one that is slow to read, and harms no lease.
MIN_STEP_S: Final = 5.0
#: So long a step counts as new. The timer has written it into the runs by then.
NEW_STEP_S: Final = 60.0
#: A reading that took longer says nothing: the process was stopped in between.
_MAX_READING_S: Final = 0.5
_READINGS: Final = 3


class ClockSteps:
    """Compares the time of day with the seconds that pass.

    Args:
        clock: the clock that the store's time goes by.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noting = threading.Lock()
        self._step: ClockStep | None = None
        self._read_at = clock.monotonic()
        self._off = clock.now().timestamp() - self._read_at

    def newest(self) -> ClockStep | None:
        """Return the last step, if it is new; ask often, as a slow drift is no step."""
        now, read_at = self._clock.now(), self._clock.monotonic()
        off = now.timestamp() - read_at
        if abs(off - self._off) < MIN_STEP_S:
            self._off, self._read_at = off, read_at
        else:
            with self._noting:
                self._note()
        step = self._step
        return step if step is not None and read_at < step.noticed_at + NEW_STEP_S else None

    def _note(self) -> None:
        """Note a step of the clock, if there was one that is not noted yet."""
        for _ in range(_READINGS):
            before, now, read_at = (
                self._clock.monotonic(),
                self._clock.now(),
                self._clock.monotonic(),
            )
            if read_at - before < _MAX_READING_S:
                break
        else:
            return
        by = now.timestamp() - read_at - self._off
        if abs(by) >= MIN_STEP_S:
            unseen = min(read_at - self._read_at, abs(by) / 2)
            since = now - timedelta(seconds=unseen)
            self._step = ClockStep(timedelta(seconds=by), since, read_at)
        self._off, self._read_at = now.timestamp() - read_at, read_at
