"""The HTTP server: waitress, bound so that no caller can keep the others out.

Waitress reads requests and writes answers in one thread, whatever their pace, and gives a request
to one of its other threads once it is there completely. So a slow caller holds a connection and
nothing else.
"""

from __future__ import annotations

import logging
import resource
import socket
import threading
from typing import Any, Final

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import create_server

from leasehold.web.manage_lease import BODY_BYTES

_LOG: Final = logging.getLogger("leasehold.server")

#: Requests that are answered at once. One takes milliseconds, unless the store is away.
THREADS: Final = 16
#: A request that is not complete by then is broken off.
REQUEST_S: Final = 30.0
#: A connection that is silent for this long between requests is closed.
IDLE_S: Final = 120.0
#: What is answered by then, when the server stops, still gets out.
FLUSH_S: Final = 2.0

#: A body over the limit gets its answer from the application; this one is not even read.
_MOST_BYTES: Final = 4 * BODY_BYTES
_MOST_CONNECTIONS: Final = 1000
_LOOK_S: Final = 1.0
_FLUSH_LOOK_S: Final = 0.05


class HttpServer:
    """Serves a WSGI application from `start` until `stop`.

    Args:
        app: the application.
        listener: a socket that listens; it is closed in the end.

    Raises:
        RuntimeError: the system has no threads for it.
    """

    def __init__(self, app: Any, listener: socket.socket) -> None:
        self._map: dict[int, Any] = {}
        self._server = create_server(
            app,
            map=self._map,
            sockets=[listener],
            threads=THREADS,
            ident=None,
            channel_timeout=int(IDLE_S),
            cleanup_interval=2,
            connection_limit=_connection_limit(),
            max_request_body_size=_MOST_BYTES,
            asyncore_use_poll=True,
        )
        self._server.channel_class = _Channel
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Accept nothing more, finish what is being answered, and close all connections."""
        self._stopping.set()
        if self._thread.is_alive():
            self._server.pull_trigger()
            self._thread.join()
        elif self._map:  # it was never started
            self._close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._loop(_LOOK_S)
            except Exception:  # noqa: BLE001 - such as no memory: nobody else serves
                _LOG.exception("the HTTP server goes on after an error")
                self._stopping.wait(_LOOK_S)
        self._close()

    def _close(self) -> None:
        self._server.task_dispatcher.shutdown(timeout=FLUSH_S)
        for channel in list(self._server.active_channels.values()):
            channel.close_when_flushed = True
        self._server.accepting = False
        for _ in range(int(FLUSH_S / _FLUSH_LOOK_S)):
            if not self._server.active_channels:
                break
            self._loop(_FLUSH_LOOK_S)
        wasyncore.close_all(self._map)

    def _loop(self, seconds: float) -> None:
        wasyncore.loop(timeout=seconds, use_poll=True, map=self._map, count=1)


class _Channel(HTTPChannel):  # type: ignore[misc] # waitress has no types
    """A connection whose requests have a time to arrive, however slowly they trickle.

    Waitress takes each byte for activity. Here a request that has begun is taken for silence,
    which is over at its time.
    """

    last_activity: float  # seconds, as `time.time` has them

    def handle_read(self) -> None:
        """Read what came."""
        before = self.last_activity if self.request is not None else None
        super().handle_read()
        if self.request is None:
            return
        self.last_activity = before or self.last_activity - (IDLE_S - REQUEST_S)


def _connection_limit() -> int:
    """Return how many connections may be open: half of what the system lets this process open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(1, min(_MOST_CONNECTIONS, files // 2))
