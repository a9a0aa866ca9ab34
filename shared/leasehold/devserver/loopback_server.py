"""A WSGI server of this machine, in a thread, for the doubles that are called over HTTP."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from typing import Any, Final

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from leasehold.errors import SettingError

_HOST: Final = "127.0.0.1"  # reachable from this machine alone

#: A connection that is silent for this long in the middle of a request is closed.
_MAX_SILENCE_S: Final = 10.0


class LoopbackServer:
    """Serves an application on the loopback interface, from `start` until `stop`.

    Args:
        app: any WSGI application.
        name: of the thread.

    Attributes:
        listener: the socket that listens, from `start` until `stop`.
    """

    listener: socket.socket

    def __init__(self, app: Any, name: str) -> None:
        self._app = app
        self._name = name
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None
        self._waker: socket.socket | None = None

    def start(self, port: int = 0) -> str:
        """Serve from now on; return the address. It can be started once.

        Args:
            port: 0: one that is free.

        Raises:
            OSError: the port is in use.
        """
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((_HOST, port))
            listening.listen(128)
            self._server = make_server(
                _HOST,
                port,
                self._app,
                threaded=True,
                request_handler=_Handler,
                fd=listening.fileno(),
            )
        self.listener = self._server.socket
        self._waker = socket.socket()  # when it stops, no descriptor may be left for one
        self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        self._thread.start()
        return f"http://{_HOST}:{self._server.port}"

    def stop(self) -> None:
        """Stop answering; a server that was never started is none to stop."""
        if self._server and self._thread and self._waker:
            _wake_and_stop(self._server, self._thread, self._waker)

    def _serve(self) -> None:
        assert self._server is not None  # noqa: S101 - `start` made it
        self._server.serve_forever(poll_interval=3600)  # it is woken when it is to stop


class _Handler(WSGIRequestHandler):
    """Logs nothing: neither requests nor those that break off are worth a line each."""

    timeout = _MAX_SILENCE_S  # for each read; its own thread reads

    def make_environ(self) -> Any:
        """Return the WSGI environment of the request; a body in chunks is empty in it.

        The reader of chunks makes up bytes without end where a connection ends in one.
        """
        environ = super().make_environ()
        if "HTTP_TRANSFER_ENCODING" in environ:
            environ["wsgi.input"] = io.BytesIO()
        return environ

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing."""

    def log_error(self, format: str, *args: Any) -> None:  # noqa: A002 - as its base has it
        """Write nothing."""


def _wake_and_stop(server: BaseWSGIServer, serving: threading.Thread, waker: socket.socket) -> None:
    """Stop a server that waits for requests without polling: a connection wakes it.

    One that it cannot accept, as no descriptor is left, keeps it awake.
    """
    stopper = threading.Thread(target=server.shutdown)
    stopper.start()
    while serving.is_alive():
        with contextlib.suppress(OSError), waker:
            waker.settimeout(1)
            waker.connect((_HOST, server.port))
        serving.join(0.005)
        with contextlib.suppress(OSError):
            waker = socket.socket()
    waker.close()
    stopper.join()


def check_free(port: int, option: str) -> None:
    """Raise SettingError, which names the option, if the port is in use already."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            allowed = f"a free port ({error.strerror})"
            raise SettingError(name=option, value=port, allowed=allowed) from None
