"""The request for a process: sent to one that forks, and answered with the pid."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from leasehold.worker.sandbox.assignment import Assignment
from leasehold.worker.sandbox.child import Child
from leasehold.worker.sandbox.fork_loop import REPORT, REQUEST

_AT_ONCE: Final = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)

#: A process that reads nothing does not keep its worker for longer.
_SEND_S: Final = 5.0


class ForkRequest:
    """A request that was sent. No descriptor is left if that fails.

    Args:
        control: where the process that forks reads its requests.
        assignment: what the new process is for.

    Raises:
        OSError: there are no descriptors to be had, or the process that forks is gone or frozen.
    """

    def __init__(self, control: socket.socket, assignment: Assignment) -> None:
        with ExitStack() as near, ExitStack() as far:
            self._call, far_call = socket.socketpair()
            near.callback(self._call.close)
            far.callback(far_call.close)
            self._output, far_output = _pipe(near, far)
            self._status, far_status = _pipe(near, far)
            ends = [far_status, far_call.fileno(), far_output]
            socket.send_fds(control, [REQUEST], ends, _AT_ONCE)
            message = assignment.encode()
            self._rest = message[self._call.send(message, _AT_ONCE) :]
            self._near = near.pop_all()

    def answer(self, seconds: float, released: Callable[[Child], None]) -> Child | None:
        """Return the process if there is one within that time; None: there is no answer yet.

        Raises:
            OSError: there will be none.
        """
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000):
            return None
        report = os.read(self._status, REPORT.size)
        if not report:
            raise ConnectionResetError("the fork server ended")
        (number,) = REPORT.unpack(report)
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        self._send_rest()
        self._near.pop_all()
        return Child(number, self._call, self._output, self._status, released)

    def cancel(self) -> None:
        """Close all descriptors; a process that was forked for it finds nobody, and ends."""
        self._near.close()

    def _send_rest(self) -> None:
        """Send what did not fit into the socket before there was somebody to read it."""
        if self._rest:
            self._call.settimeout(_SEND_S)
            self._call.sendall(self._rest)
            self._call.settimeout(None)


def _pipe(near: ExitStack, far: ExitStack) -> tuple[int, int]:
    reads, writes = os.pipe()
    near.callback(os.close, reads)
    far.callback(os.close, writes)
    return reads, writes
