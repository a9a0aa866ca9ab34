"""A worker of gunicorn that does not wait forever until a request arrived completely."""

from __future__ import annotations

import errno
import math
import socket
import time
from functools import partial
from typing import Any, Final

from gunicorn.workers.gthread import TConn, ThreadWorker

#: A request that is not complete by then never will be: on loopback it takes milliseconds.
MAX_REQUEST_S: Final = 10.0

#: A connection that is silent for this long takes no thread; it is read when it sends again.
MAX_SILENCE_S: Final = 0.05


class Connection(socket.socket):
    """A connection whose reads end at a time, however much came before it.

    A timeout of the socket would begin again with each byte; that of a worker of gunicorn is for
    one that hangs.
    """

    over_at: float = math.inf  # in monotonic seconds

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return what came, as `socket.recv` does.

        Raises:
            ConnectionResetError: the time is over; gunicorn just closes the connection.
        """
        before, left = self.gettimeout(), self.over_at - time.monotonic()
        try:
            self.settimeout(max(left, 0.001) if before is None else min(before, max(left, 0.001)))
            return super().recv(size, flags)
        except TimeoutError:
            if time.monotonic() < self.over_at:
                raise  # of a shorter wait, which is the caller's
            raise ConnectionResetError(errno.ECONNRESET, "the request is not complete") from None
        finally:
            self.settimeout(before)


class RequestTimeoutWorker(ThreadWorker):  # type: ignore[misc] # gunicorn has no types
    """Gunicorn's worker for threads, with a time within which each request must arrive."""

    def handle(self, conn: Any) -> Any:
        """Read and answer one request of a connection; in a thread of the pool."""
        if not isinstance(conn.sock, Connection):
            plain = conn.sock
            kind = (plain.family, plain.type, plain.proto)
            conn.sock = Connection(*kind, fileno=plain.detach())
            conn.wait_for_data = partial(_wait_for_data, conn)
        conn.sock.over_at = time.monotonic() + MAX_REQUEST_S
        return super().handle(conn)


def _wait_for_data(conn: TConn, timeout: float) -> bool:
    """Wait for the first bytes, but not long in a thread that others need."""
    return bool(TConn.wait_for_data(conn, min(timeout, MAX_SILENCE_S)))
