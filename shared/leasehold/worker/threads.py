"""Threads of this process, where the system may have none to give."""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_thread(target: Callable[[], object], name: str) -> threading.Thread | None:
    """Start a daemon thread and return it; None: the system has no thread, or no memory, for it."""
    try:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
    except (RuntimeError, MemoryError):
        return None
    return thread
