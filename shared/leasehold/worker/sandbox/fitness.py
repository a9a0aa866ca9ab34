"""Whether a process works when it is forked, after it has imported somebody's module."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from typing import Final

#: That of the conversation with the worker.
_OWN_SOCKETS: Final = 1


def is_fit_for_forking() -> bool:
    """Return whether a fork of this process works as it does itself.

    Python's threads are not forked, and neither are those of gRPC, which are missed; those of other
    C libraries that wait for work (a matrix library's) do no harm. A connection that was opened
    would be shared by all forks.
    """
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return False
    if "grpc._cython.cygrpc" in sys.modules and _native_threads() > 1:
        return False
    return _open_sockets() <= _OWN_SOCKETS


def _native_threads() -> int:
    """Return how many threads this process has, of any kind; 0: it is not known."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - no pathlib here
    except OSError:
        return 0


def _open_sockets() -> int:
    """Return how many sockets this process has; 0: it is not known."""
    count = 0
    with suppress(OSError):  # no /proc
        for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
            with suppress(OSError):  # that of the list itself
                count += stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    return count
