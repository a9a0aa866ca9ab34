from __future__ import annotations

import hashlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from leasehold.server.server import ServeOptions, Server
from tests.worlds.builders import environ_of
from tests.worlds.catalogs.sample import ENTERED, GO_ON
from tests.worlds.ports import own_port

JSON = {"Content-Type": "application/json"}


class Answer(NamedTuple):
    status: int
    body: Any


class Api:
    """A client of a server that the test started."""

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix("http://").rpartition(":")
        self.port = int(port)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        caller = http.client.HTTPConnection(self.host.strip("[]"), self.port, timeout=30)
        text = None if body is None else json.dumps(body)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            caller.request(method, path, text, (JSON if text else {}) | given)
            answer = caller.getresponse()
            return Answer(answer.status, json.loads(answer.read()))
        finally:
            caller.close()

    def post(self, path: str, body: Any = None) -> Any:
        answer = self.ask("POST", path, body or {})
        assert answer.status < 300, answer
        return answer.body

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.body


def long_leases(folder: Path) -> dict[str, str]:
    """Return the environment of servers with leases so long that none is renewed or ends."""
    return environ_of(
        folder, LEASEHOLD_CATALOG="tests.worlds.catalogs.sample", PIPELINE_LEASE_TTL_S="600"
    )


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return long_leases(tmp_path)


@pytest.fixture
def serve(environ: dict[str, str]) -> Iterator[Callable[..., Server]]:
    """Starts servers in this process, and stops them in the end."""
    with serving(environ) as start:
        yield start


@contextmanager
def serving(environ: dict[str, str]) -> Iterator[Callable[..., Server]]:
    """Lend what starts servers in this process; stop them in the end."""
    servers: list[Server] = []

    def start(workers: int = 2, host: str = "127.0.0.1", **settings: str) -> Server:
        options = ServeOptions(host, own_port(), workers)
        server = Server(options, lambda _: None, environ | settings)
        servers.append(server)
        server.start()
        return server

    try:
        yield start
    finally:
        for server in servers:
            server.stop()


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture
def api(server: Server) -> Api:
    return Api(server.url)


@pytest.fixture
def held(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The body that starts a run whose first step waits; its id is in `ENTERED` and `GO_ON`."""
    key = request.node.name
    run_id = f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    ENTERED[run_id], GO_ON[run_id] = threading.Event(), threading.Event()
    yield {"pipeline": "holds", "input": {"n": 1}, "idempotencyKey": key}
    GO_ON[run_id].set()
