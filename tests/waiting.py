"""Waiting for something that happens in another thread, process or server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(look: Callable[[], Found], seconds: float = 30) -> Found:
    """Look again and again until there is something; return it.

    Args:
        look: called at first every few milliseconds, then every 20; what is false is not
            there yet.
        seconds: how long it may take; it costs nothing where it comes sooner.
    """
    never, end, pause = threading.Event(), time.monotonic() + seconds, 0.005
    while not (found := look()):
        assert time.monotonic() < end, f"it did not come within {seconds} s"
        never.wait(pause)
        pause = min(0.02, pause * 1.2)
    return found
