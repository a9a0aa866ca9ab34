"""The bus of `leasehold dev`, as functions publish to it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from leasehold.adapters.http_events import HttpEvents
from leasehold.errors import StoreUnavailableError
from tests.worlds.builders import message
from tests.worlds.loopback_http import LoopbackHttp
from tests.worlds.ports import own_port


class Server(LoopbackHttp):
    """Answers each request with one status, and keeps the bodies."""

    def __init__(self) -> None:
        self.status = 200
        self.bodies: list[Any] = []
        super().__init__(self._keep)

    def _keep(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers["Content-Length"])
        self.bodies.append(json.loads(request.rfile.read(length)))
        request.send_response(self.status)
        request.end_headers()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def test_all_messages_of_a_call_are_one_request(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # it asks no proxy

    HttpEvents(server.url, "").publish([message("r-1"), message("r-2")])

    (body,) = server.bodies
    contents = [json.loads(base64.b64decode(one["data"])) for one in body["messages"]]
    assert [content["data"]["runId"] for content in contents] == ["r-1", "r-2"]
    assert body["messages"][0]["attributes"]["channel"] == "log"


def test_many_messages_are_several_requests(server: Server) -> None:
    """The server takes no body without end."""
    HttpEvents(server.url, "").publish([message(f"r-{number}") for number in range(250)])

    assert [len(body["messages"]) for body in server.bodies] == [100, 100, 50]


def test_a_server_that_refuses_them_is_away(server: Server) -> None:
    server.status = 500

    with pytest.raises(StoreUnavailableError, match="it answered 500"):
        HttpEvents(server.url, "").publish([message("r-1")])


def test_a_server_that_is_gone_is_away() -> None:
    bus = HttpEvents(f"http://127.0.0.1:{own_port()}", "")

    with pytest.raises(StoreUnavailableError, match="ConnectionRefusedError"):
        bus.publish([message("r-1")])

    assert bus.close()
