"""Files that a server sends: whole or not at all, and no more than was announced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from leasehold import Client
from leasehold.api import calls
from leasehold.cli.results import save
from leasehold.errors import ServerRefusedError, ServerUnreachableError
from tests.worlds.serving import while_serving


@pytest.fixture
def sending() -> Iterator[Callable[..., str]]:
    """Starts a server that sends these headers and this body, and closes the connection."""
    servers = ExitStack()

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
        servers.enter_context(while_serving(server))
        return f"http://127.0.0.1:{server.server_port}"

    with servers:
        yield start


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
    server = Client(sending(b"12345", **headers))

    with (
        pytest.raises(ServerUnreachableError, match="broke off after 5 of 7 bytes"),
        server.call(calls.file, None, "r-1", name="a") as content,
    ):
        save(content, tmp_path / "a", replace=False)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [None, "", "many", "-5", "1e9"])
def test_another_server_sends_no_file(sending: Callable[..., str], size: str | None) -> None:
    server = Client(sending(b"12345", **({} if size is None else {"X_Leasehold_Size": size})))

    with (
        pytest.raises(ServerRefusedError, match="not as the runs API"),
        server.call(calls.file, None, "r", name="a"),
    ):
        pass


def test_a_file_has_no_more_than_was_announced(sending: Callable[..., str], tmp_path: Path) -> None:
    """A server at the address may send without end."""
    server = Client(sending(b"x" * 1_000_000, X_Leasehold_Size="3"))

    with server.call(calls.file, None, "r-1", name="a") as content:
        save(content, tmp_path / "a", replace=False)

    assert (tmp_path / "a").read_bytes() == b"xxx"
