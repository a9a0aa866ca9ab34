"""The clock port: the only source of time and of new ids."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time, in the two kinds that must not be mixed, and names no one else has."""

    @property
    def skip(self) -> Callable[[float], object] | None:
        """Lets so many seconds pass at once, in place of waiting; None: time passes by itself."""
        ...

    def now(self) -> datetime:
        """Return the time of day, in UTC. It may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment. They only grow, at one second a second."""
        ...

    def new_id(self) -> str:
        """Return 16 random hexadecimal digits."""
        ...
