"""Ports of the loopback interface, for servers of tests."""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Final

from leasehold.devserver.function_processes import free_port

_KEPT: Final[list[socket.socket]] = []


def own_port() -> int:
    """Return a port that is given to no other caller until this process ends.

    A socket of this process has it and never listens: a connection is refused until a server that
    sets SO_REUSEADDR listens there. So that server may end, and come back. Only Linux lets two have
    a port so; elsewhere it is a free port, as it was found.
    """
    if sys.platform != "linux":
        return free_port()
    keeper = socket.socket()
    while True:
        with contextlib.suppress(OSError):  # somebody was given the same one meanwhile
            keeper.bind(("127.0.0.1", free_port()))
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: it is shared
            _KEPT.append(keeper)
            return int(keeper.getsockname()[1])
