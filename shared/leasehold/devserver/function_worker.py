"""A worker of gunicorn that does not wait for ever for a request to come whole."""

from __future__ import annotations

import errno
import math
import socket
import time
from functools import partial
from typing import Any, Final

from gunicorn.workers.gthread import TConn, ThreadWorker

#: A request that has not come whole by then never will: on loopback it takes milliseconds.
REQUEST_S: Final = 10.0

#: A connection that says nothing for so long takes no thread; it is looked at when it speaks.
SILENCE_S: Final = 0.05


class Connection(socket.socket):
    """A connection whose reads end at a time, however much came before it.

    A timeout of the socket would begin again with each byte; that of a worker of gunicorn is for
    one that hangs.
    """

    over_at: float = math.inf  # in monotonic seconds

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return what came, as `socket.recv` does.

        Raises:
            ConnectionResetError: the time is over; gunicorn closes the connection and is silent.
        """
        before, left = self.gettimeout(), self.over_at - time.monotonic()
        try:
            self.settimeout(max(left, 0.001) if before is None else min(before, max(left, 0.001)))
            return super().recv(size, flags)
        except TimeoutError:
            if time.monotonic() < self.over_at:
                raise  # of a shorter wait, which is the caller's
            raise ConnectionResetError(errno.ECONNRESET, "the request did not come whole") from None
        finally:
            self.settimeout(before)


class FunctionWorker(ThreadWorker):  # type: ignore[misc] # gunicorn has no types
    """The worker that gunicorn chooses for threads, with an end to each request's coming."""

    def handle(self, conn: Any) -> Any:
        """Read and answer one request of a connection; in a thread of the pool."""
        if not isinstance(conn.sock, Connection):
            found = conn.sock
            facts = (found.family, found.type, found.proto)
            conn.sock = Connection(*facts, fileno=found.detach())
            conn.wait_for_data = partial(_wait_for_data, conn)
        conn.sock.over_at = time.monotonic() + REQUEST_S
        return super().handle(conn)


def _wait_for_data(conn: TConn, timeout: float) -> bool:
    """Wait for the first bytes, but not in a thread that others need."""
    return bool(TConn.wait_for_data(conn, min(timeout, SILENCE_S)))
