"""A server that starts: it answers `/health` before what takes long is imported."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.server.conftest import Answer, Api
from tests.chaos.bundle.conftest import ROOT, settings
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

pytestmark = pytest.mark.cold

#: A catalog whose import takes until the test lets it go on.
_SLOW = """
import os, pathlib, time
while not pathlib.Path(os.environ["BUNDLE_TEST_FOLDER"], "go-on").exists():
    time.sleep(0.01)
"""
WHOLE = f"{_SLOW}from tests.chaos.bundle.catalog import *\n"
#: As dataclasses and named tuples run the text that they make.
_IN_EXEC = f"exec({_SLOW!r})\n"
_BROKEN = f"{_SLOW}import no_such_module\n"
_FIRST = """
import sys
import leasehold.cli.serve, leasehold.server.startup, leasehold.server.http_server
import leasehold.cli.dev, leasehold.devserver.loopback_server
print(*{"flask", "pydantic", "leasehold.bootstrap", "leasehold.domain.manifest"} & set(sys.modules))
"""


@contextmanager
def starting(
    folder: Path, catalog: str, command: str = "serve", port: int | None = None, **others: str
) -> Iterator[tuple[subprocess.Popen[str], Api]]:
    """Give a server whose catalog is being imported, once it answers."""
    (folder / "slow_catalog.py").write_text(catalog)
    port = port or own_port()
    environ = settings(folder) | {
        "LEASEHOLD_CATALOG": "slow_catalog",
        "LEASEHOLD_STORE": f"sqlite:///{folder / 'leasehold.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
        "PYTHONPATH": f"{ROOT}:{folder}",
        **others,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "leasehold", command, "--port", str(port)],
        env=environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        api = Api(f"http://127.0.0.1:{port}")
        until(lambda: _health(api))
        yield process, api
    finally:
        process.kill()
        process.communicate()


def _health(api: Api) -> Answer | None:
    try:
        return api.ask("GET", "/health")
    except OSError:  # it does not listen yet
        return None


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_it_is_healthy_and_not_ready_while_its_catalog_is_imported(
    tmp_path: Path, command: str
) -> None:
    with starting(tmp_path, WHOLE, command) as (process, api):
        assert process.stderr is not None
        said = process.stderr.readline()
        health = api.ask("GET", "/health")
        others = [api.ask("GET", "/ready"), api.ask("GET", "/runs")]
        others += [api.ask("POST", "/runs", {"pipeline": "notes", "input": {}})]
        (tmp_path / "go-on").touch()
        until(lambda: api.ask("GET", "/ready").status == 200)
        runs = api.get("/runs")["runs"]

    assert said == "starting: the catalog and its handlers are imported\n"
    assert health == (200, {"status": "ok"})
    for refused in others:
        assert (refused.status, refused.body["error"]["code"]) == (503, "not_ready")
        assert "the server starts" in refused.body["error"]["message"]
    assert runs == []


def test_a_body_that_comes_while_it_starts_is_there_for_the_api(tmp_path: Path) -> None:
    """Its head came to a server that was starting, and its end to one that had."""
    body = b'{"pipeline": "notes", "input": {}}'
    head = f"POST /runs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with (
        starting(tmp_path, WHOLE) as (_, api),
        socket.create_connection(("127.0.0.1", api.port), timeout=30) as caller,
    ):
        caller.sendall(f"{head}\r\nHost: 127.0.0.1:{api.port}\r\n\r\n".encode() + body[:10])
        (tmp_path / "go-on").touch()
        until(lambda: api.ask("GET", "/ready").status == 200)
        caller.sendall(body[10:])
        answer = caller.recv(100)

    assert answer.startswith(b"HTTP/1.1 201")


def test_the_dev_server_is_ready_when_it_says_so(tmp_path: Path) -> None:
    with starting(tmp_path, WHOLE, "dev") as (process, api):
        assert process.stdout is not None
        (tmp_path / "go-on").touch()
        answers = [api.ask("GET", "/health"), api.ask("GET", "/ready")]
        said = process.stdout.readline()
        answers += [api.ask("GET", "/ready")]
        started = api.ask("POST", "/runs", {"pipeline": "notes", "input": {}})

    assert [answer.status for answer in answers] == [200, 503, 200]
    assert said == f"ready http://127.0.0.1:{api.port}\n"
    assert started.status == 201


@pytest.mark.cover(1)
@pytest.mark.parametrize("catalog", [WHOLE, _IN_EXEC], ids=["imports", "executes"])
@pytest.mark.parametrize("command", ["serve", "dev"])
def test_a_server_that_is_told_to_end_while_it_starts_says_so(
    tmp_path: Path, command: str, catalog: str
) -> None:
    with starting(tmp_path, catalog, command) as (process, _):
        assert process.stderr is not None
        process.stderr.readline()  # it imports the catalog
        process.terminate()
        said, lines = process.communicate(timeout=60)

    assert (process.returncode, said) == (0, ""), lines
    assert lines.splitlines()[-1] == "stopped before it was ready"


def test_it_ends_where_the_catalog_cannot_be_imported(tmp_path: Path) -> None:
    with starting(tmp_path, _BROKEN) as (process, _):
        (tmp_path / "go-on").touch()
        _, said = process.communicate(timeout=60)

    assert process.returncode == 2
    assert "no_such_module" in said
    assert not (tmp_path / "leasehold.db").exists()


def test_what_takes_long_to_import_is_imported_after_it_answers(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _FIRST], cwd=tmp_path, check=True, capture_output=True, text=True
    )

    assert found.stdout.split() == []
