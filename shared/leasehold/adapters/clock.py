"""The one place that reads the machine's clock and makes random ids."""

from __future__ import annotations

import os
import time
from collections import deque
from datetime import UTC, datetime
from typing import Final

#: How many ids are drawn at once: each call of the system lets go of Python's lock, and then
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
