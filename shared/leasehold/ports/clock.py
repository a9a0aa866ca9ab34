"""The clock port: the only source of time and of new ids."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from leasehold.frozen import dataclass


class Clock(Protocol):
    """Time, in the two kinds that must not be mixed, and unique names."""

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


# How a process waits, and makes calls beside its work.


#: The next call to make, or None where there is none now.
NextCall = Callable[[], Callable[[], None] | None]


@dataclass(frozen=True, slots=True)
class Threads:
    """Calls that are made by other threads than the one that asks for them.

    Args:
        side_by_side: makes the calls that it is given, so many at a time, until it gets none.
        bounded: makes a call that may hang, as `errand`.
        pause: lets so many seconds pass.
    """

    side_by_side: Callable[[NextCall, int], None]
    bounded: Callable[[Callable[[], object], float | None], bool]
    pause: Callable[[float], None]

    def errand(self, call: Callable[[], object], patience_s: float | None = None) -> bool:
        """Make a call in the background, and return whether it is over.

        One that hangs goes on without the caller, or is not made.

        Args:
            call: what is called.
            patience_s: for how many seconds it is waited for; None: as all are.

        Raises:
            Errors of the call, if it ends in time.
        """
        return self.bounded(call, patience_s)
