"""A process of this machine that is killed by no mistake: its pid may be given to another one."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

#: Linux 6.9: all processes of the group that the process leads.
_GROUP: Final = 1 << 2


class ProcessHandle:
    """Kills one process and its group.

    Args:
        pid: the process; it has not been reaped yet.
        is_reaped: whether it may have been since, where the system cannot say so itself.
    """

    def __init__(self, pid: int, is_reaped: Callable[[], bool] = lambda: False) -> None:
        self.pid = pid
        self._is_reaped = is_reaped
        self._descriptor = _opened(pid)
        self._lock = threading.Lock()
        self._is_closed = False

    def kill(self) -> None:
        """Kill the process and all that are in the group it leads; no one, if it is gone."""
        with self._lock:
            if self._is_closed:
                return
            self._send(signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                self._kill_group()

    def signal(self, number: int) -> None:
        """Send a signal to the process alone; no one gets it, if it is gone."""
        with self._lock:
            if not self._is_closed:
                self._send(number)

    def wait(self, seconds: float) -> bool:
        """Return whether the process ends within that time; True where the system cannot say."""
        if self._descriptor < 0:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Release the process."""
        with self._lock:
            if self._descriptor >= 0 and not self._is_closed:
                os.close(self._descriptor)
            self._is_closed = True

    def _send(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if self._descriptor >= 0:
                signal.pidfd_send_signal(self._descriptor, number)
            elif not self._is_reaped():
                os.kill(self.pid, number)

    def _kill_group(self) -> None:
        if self._descriptor >= 0:
            try:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL, None, _GROUP)
            except ProcessLookupError:
                raise
            except OSError:  # an older kernel
                pass
            else:
                return
        if not self._is_reaped():
            os.killpg(self.pid, signal.SIGKILL)


def _opened(pid: int) -> int:
    """Return a descriptor of the process, or -1."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # gone, too many descriptors, or another system
        return -1
