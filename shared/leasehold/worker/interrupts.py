"""Ctrl-C, which the system tells the main thread alone, wherever that stands."""

from __future__ import annotations

import threading


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether the error is an interrupt of this process, raised where its code stood."""
    return isinstance(error, KeyboardInterrupt) and is_main_thread()


def is_main_thread() -> bool:
    """Return whether this is the thread that the system tells of signals."""
    return threading.current_thread() is threading.main_thread()
