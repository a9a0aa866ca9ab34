"""A worker on loopback: it notes each delivery, and answers as ordered."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

PATIENCE = 60.0


@dataclass(frozen=True)
class Delivery:
    """A request, and its time by the monotonic clock."""

    method: str
    path: str
    headers: dict[str, str]
    body: str
    at: float
    peer: Any

    def header(self, name: str) -> str | None:
        return self.headers.get(f"X-CloudTasks-{name}")


class Target:
    """Answers 200, or the statuses it is given first; while it is held, it does not answer."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.most_at_once = 0
        self.answered = 0
        self.body = b"fine"
        self.trickle = 0.0  # seconds between the bytes of an answer
        self.drops = 0  # so many connections are closed without an answer
        self._now = 0
        self._answers: deque[tuple[int, dict[str, str]]] = deque()
        self._changed = threading.Condition()
        self._open = threading.Event()
        self._open.set()
        self._never = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.target = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, *statuses: int, **headers: str) -> None:
        """Answer the next deliveries with these."""
        self._answers.extend((status, headers) for status in statuses)

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def wait_for(self, count: int) -> list[Delivery]:
        """Return the deliveries, once there are so many."""
        with self._changed:
            enough = self._changed.wait_for(lambda: len(self.deliveries) >= count, PATIENCE)
            assert enough, f"{len(self.deliveries)} deliveries came, not {count}"
            return list(self.deliveries)

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length", 0))
        body = handler.rfile.read(length).decode()
        delivery = Delivery(
            method=handler.command,
            path=handler.path,
            headers=dict(handler.headers),
            body=body,
            at=time.monotonic(),
            peer=handler.client_address,
        )
        with self._changed:
            status, headers = self._answers.popleft() if self._answers else (200, {})
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.deliveries.append(delivery)
            self._changed.notify_all()
        self._open.wait(PATIENCE)
        with self._changed:
            self._now -= 1
            self.answered += 1
            drop, self.drops = self.drops > 0, max(0, self.drops - 1)
        if drop:
            handler.close_connection = True
            return
        handler.send_response(status)
        for name, text in headers.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.send_header("Content-Length", str(len(self.body)))
        handler.end_headers()
        for octet in self.body if self.trickle else ():
            handler.wfile.write(bytes([octet]))
            self._never.wait(self.trickle)
        if not self.trickle:
            handler.wfile.write(self.body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # a connection that finds the queue full is tried again after 1 s
    target: Target

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The caller has gone; the worker does not care."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        self.server.target.take(self)

    do_GET = do_PUT = do_POST  # noqa: N815 - the names are those of http.server

    def log_message(self, *args: Any) -> None:
        """It is not read."""
