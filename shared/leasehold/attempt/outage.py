"""Outages: a store that is away is asked again for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar

from leasehold.domain.retry import doubling
from leasehold.errors import StoreUnavailableError
from leasehold.ports.clock import Clock

T = TypeVar("T")

#: The waits between two tries.
_WAITS: Final = doubling(timedelta(seconds=0.1), timedelta(seconds=2))
#: Where less is left, no further try is worth it.
_MIN_TRY_S: Final = 0.1


def outlast(
    call: Callable[[], T],
    outage: StoreUnavailableError,
    begun: float,
    *,
    now: Callable[[], float],
    until: Callable[[], float],
    wait: Callable[[float], object],
    report: Callable[[StoreUnavailableError], object],
) -> T:
    """Return what `call` returns, which met an outage: the store is asked again, in growing waits.

    Args:
        call: may be made any number of times.
        outage: what its first try met.
        begun: when that was made, in monotonic seconds.
        now: monotonic seconds.
        until: when to give up, likewise; asked before each wait, as it may move. No try is begun
            that would end later, if it took as long as the one before.
        wait: waits so many seconds; what is true says: give up now.
        report: given each outage that is met.

    Raises:
        StoreUnavailableError: the store was away for all that time.
    """
    tried_at, waited, waits_s = begun, 0.0, _WAITS.waits_s()
    while True:
        report(outage)
        passed = max(waited, now() - begun)  # a clock may stand still
        took = now() - tried_at  # the next try may take as long
        left = until() - begun - passed - took
        pause_s = min(next(waits_s), left / 2)  # a short lease is renewed often, or over soon
        if left < _MIN_TRY_S or wait(pause_s):
            raise outage
        waited += pause_s
        tried_at = now()
        try:
            return call()
        except StoreUnavailableError as error:
            outage = error


def pause(clock: Clock, seconds: float) -> None:
    """Let so many seconds pass; a clock that skips waits moves on at once."""
    if seconds <= 0:
        return
    if clock.skip is not None:
        clock.skip(seconds)
    else:
        time.sleep(seconds)
