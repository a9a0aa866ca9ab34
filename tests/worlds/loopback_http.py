"""A plain HTTP server of a test, on loopback: the test says what a request does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LoopbackHttp:
    """Serves until it is closed.

    Args:
        answer: reads a request, a GET or a POST, and answers it.

    Attributes:
        url: where it listens.
    """

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                answer(self)

            do_GET = do_POST  # noqa: N815 - as the library names it

            def log_message(self, *args: Any) -> None:
                """It is not read."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and wait until it has."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
