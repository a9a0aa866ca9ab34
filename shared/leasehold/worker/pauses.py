"""Pauses of a call that has nothing else to do."""

from __future__ import annotations

import time

from leasehold.ports.clock import Clock


def pause(clock: Clock, seconds: float) -> None:
    """Let so many seconds pass; a clock that skips waits moves on at once."""
    if seconds <= 0:
        return
    if clock.skip is not None:
        clock.skip(seconds)
    else:
        time.sleep(seconds)
