"""A real web server for tests: it keeps each request, and answers as the test says."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme

from tests.worlds.serving import while_serving


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = Callable[[BaseHTTPRequestHandler], None]


def answering(status: int, body: str = "", **headers: str) -> Answer:
    """Answer each request alike; `_` in the name of a header is `-`."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body.encode())))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return answer


def breaking_off(handler: BaseHTTPRequestHandler) -> None:
    """Take the request, and end the connection without a word."""
    handler.close_connection = True


@dataclass
class WebServer:
    port: int
    answer: Answer = field(default_factory=lambda: answering(200, "ok"))
    requests: list[Request] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)

    def dripping(self, handler: BaseHTTPRequestHandler) -> None:
        """Send a byte now and then, of an answer that never ends."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not self.ending.wait(0.02):
            try:
                handler.wfile.write(b"x")
            except OSError:  # nobody reads it any more
                return

    def silent(self, handler: BaseHTTPRequestHandler) -> None:  # noqa: ARG002 - it says nothing
        """Take the request, and answer nothing."""
        self.ending.wait(60)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a caller that is gone."""


@contextmanager
def serving(certificate: trustme.LeafCert | None = None) -> Iterator[WebServer]:
    """Serve on a free port of this machine, with TLS where there is a certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.requests.append(Request(self.path, dict(self.headers), body))
            server.answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
            """Keep stderr for what failed."""

    web = _Server(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate.configure_cert(context)
        web.socket = context.wrap_socket(
            web.socket, server_side=True, do_handshake_on_connect=False
        )
    server = WebServer(web.server_address[1])
    with while_serving(web):
        try:
            yield server
        finally:
            server.ending.set()
