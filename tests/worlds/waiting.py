"""Waiting for something that happens in another thread, process or server, or having it wait."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.worlds.processes import is_stopped

Found = TypeVar("Found")


def until(look: Callable[[], Found], seconds: float = 30) -> Found:
    """Look again and again until there is something; return it.

    Args:
        look: called at first every few milliseconds, then every 50, and after a long wait every
            half a second, as it may be a request; for half of the time at most. An answer that is
            false is not there yet.
        seconds: how long it may take; it costs nothing where it comes sooner.
    """
    never, began = threading.Event(), time.monotonic()
    looked, pause = began, 0.005
    while not (found := look()):
        now = time.monotonic()
        assert now < began + seconds, f"it did not come within {seconds} s"
        never.wait(min(0.5, max(pause, now - looked, (now - began) / 20)))
        pause, looked = min(0.05, pause * 1.2), time.monotonic()
    return found


def freeze(pids: Iterable[int], file: Path) -> None:
    """Stop processes while none writes to the SQLite file, which would otherwise be locked."""
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            until(partial(is_stopped, pid))
