"""A server of a test, in its own thread while the test needs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer


@contextmanager
def while_serving(server: BaseServer) -> Iterator[None]:
    """Have a server answer while inside; then its port is closed, and is not about to be.

    Its thread is waited for: one of werkzeug closes the socket itself, and a second close does
    nothing while the first one is under way.
    """
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
