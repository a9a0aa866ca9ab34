"""A server of a test, in a thread of its own while the test needs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer


@contextmanager
def while_serving(server: BaseServer) -> Iterator[None]:
    """Have a server answer while inside; then nobody listens at its port, nor is about to close it.

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
