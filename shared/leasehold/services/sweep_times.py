"""How long a sweep and each part of it may take, and how many runs it attends to at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from leasehold.registry.function_table import FUNCTIONS


def sweep_time(function: str) -> timedelta:
    """Return how long one sweep within this function begins to attend to runs.

    What it has begun, and a queue or a store that takes all of its patience, fit into the other
    half of the function's time.
    """
    return FUNCTIONS[function].timeout / 2


SWEEP_TIME: Final = sweep_time("sweep_dead_letters")

#: How many runs are attended at once, and for how long each may be tried: one that cannot be
#: written takes one of these places for that long, and holds up nobody.
WIDTH: Final = 8
ATTEND_WITHIN_S: Final = 3.0

#: How often a sweep looks for leases that are over while it attends to everything else: the next
#: one does not begin before this one is done.
LOOK_AGAIN_S: Final = 20.0
