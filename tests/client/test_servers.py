"""A client of a server: what may answer, and what becomes of who waits for a run there."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from leasehold.cli.saved_file import save
from leasehold.client.server_source import ServerSource
from leasehold.client.source import retry_unreachable
from leasehold.errors import InvalidRequestError, ServerRefusedError, ServerUnreachableError
from leasehold.services.read_runs import RunFilter

Answering = Callable[..., str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Starts a server that gives these answers one after the other, the last one for ever."""
    servers: list[HTTPServer] = []

    def start(*answers: tuple[int, Any]) -> str:
        left = list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def look(url: str) -> Any:
    return ServerSource(url).page(RunFilter(), 50, None)


@pytest.mark.parametrize("body", [{}, [], {"runs": [{"runId": 1}], "nextPageToken": None}])
def test_another_kind_of_server_is_told_from_a_runs_api(answering: Answering, body: Any) -> None:
    with pytest.raises(ServerRefusedError, match="not as the runs API"):
        look(answering((200, body)))


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:1"])
def test_a_server_that_is_not_there_is_said_to_be_unreachable(url: str) -> None:
    with pytest.raises((ServerUnreachableError, InvalidRequestError), match="--url"):
        look(url)


def test_an_error_is_told_in_the_words_of_the_server(answering: Answering) -> None:
    with pytest.raises(ServerRefusedError, match="limit is wrong"):
        look(answering((400, {"error": {"message": "limit is wrong"}})))


@pytest.mark.parametrize(("code", "kept"), [(403, None), ("not_allowed", "not_allowed")])
def test_an_error_of_a_proxy_before_the_server_keeps_its_message(
    answering: Answering, code: Any, kept: str | None
) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo"}]
    error = {"code": code, "message": "Permission denied", "details": details}
    with pytest.raises(ServerRefusedError, match=r"Permission denied$") as refused:
        look(answering((403, {"error": error})))
    assert refused.value.details["code"] == kept


@pytest.mark.parametrize(
    "body", [[], None, {}, {"error": "no"}, {"error": {"message": None}}, {"error": {"code": []}}]
)
def test_an_error_without_a_message_is_told_by_its_status(answering: Answering, body: Any) -> None:
    with pytest.raises(ServerRefusedError, match=r"404 Not Found$"):
        look(answering((404, body)))


def test_who_waits_bears_a_server_that_is_away_for_a_moment(answering: Answering) -> None:
    away = (503, {"error": {"message": "the store does not answer"}})
    url = answering(away, away, (200, {"runs": [], "nextPageToken": None}))

    page = retry_unreachable(lambda: look(url))()

    assert page.runs == []


# -- files -----------------------------------------------------------------------------------------


@pytest.fixture
def sending() -> Iterator[Callable[..., str]]:
    """Starts a server that sends these headers and this body, and closes the connection."""
    servers: list[HTTPServer] = []

    def start(body: bytes, **headers: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        serve = partial(server.serve_forever, poll_interval=0.02)
        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Leasehold_Size": "7"},
        {"X_Leasehold_Size": "7", "Content_Length": "7"},
        {"X_Leasehold_Size": "7", "Content_Length": "5"},
    ],
    ids=["no length", "cut off", "another length"],
)
def test_a_file_that_did_not_come_whole_is_not_written(
    sending: Callable[..., str], headers: dict[str, str], tmp_path: Path
) -> None:
    """A server that dies breaks off, and a file of half its bytes would look whole."""
    server = ServerSource(sending(b"12345", **headers))

    with (
        pytest.raises(ServerUnreachableError, match="broke off after 5 of 7 bytes"),
        server.open_file("r-1", "a") as content,
    ):
        save(content, tmp_path / "a", replace=False)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [None, "", "many", "-5", "1e9"])
def test_another_server_sends_no_file(sending: Callable[..., str], size: str | None) -> None:
    server = ServerSource(sending(b"12345", **({} if size is None else {"X_Leasehold_Size": size})))

    with pytest.raises(ServerRefusedError, match="not as the runs API"), server.open_file("r", "a"):
        pass


def test_a_file_has_no_more_than_was_announced(sending: Callable[..., str], tmp_path: Path) -> None:
    """Whoever is at the address may send without end."""
    server = ServerSource(sending(b"x" * 1_000_000, X_Leasehold_Size="3"))

    with server.open_file("r-1", "a") as content:
        save(content, tmp_path / "a", replace=False)

    assert (tmp_path / "a").read_bytes() == b"xxx"
