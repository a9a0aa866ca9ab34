"""The one place that reads the machine's clock and makes random ids."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - this is the one place

    def monotonic(self) -> float:
        """Return seconds that only grow, also while the process is stopped."""
        return time.monotonic()

    def new_id(self) -> str:
        """Return 16 random hexadecimal digits."""
        return os.urandom(8).hex()
