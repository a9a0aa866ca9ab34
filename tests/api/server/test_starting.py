"""A server that starts: it answers `/health` before what takes long is imported."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.server.conftest import Answer, Api
from tests.worlds.bundles import ROOT, settings
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

#: A catalog whose import takes until the test lets it go on.
_SLOW = """
import os, pathlib, time
while not pathlib.Path(os.environ["BUNDLE_TEST_FOLDER"], "go-on").exists():
    time.sleep(0.01)
"""
WHOLE = f"{_SLOW}from tests.worlds.catalogs.bundle import *\n"
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


#: A run of the catalog, and the request that starts it.
NOTES = {"pipeline": "notes", "input": {}}


@pytest.mark.parametrize("command", [pytest.param("serve", marks=pytest.mark.cold), "dev"])
def test_it_is_healthy_and_not_ready_while_its_catalog_is_imported(
    tmp_path: Path, command: str
) -> None:
    """Of `serve`, the API gets a body whose head came to a server that was starting."""
    with (
        starting(tmp_path, WHOLE, command) as (process, api),
        socket.create_connection(("127.0.0.1", api.port), timeout=30) as caller,
    ):
        assert process.stderr is not None
        assert process.stdout is not None
        said = process.stderr.readline()
        health = api.ask("GET", "/health")
        others = [api.ask("GET", "/ready"), api.ask("GET", "/runs")]
        others += [api.ask("POST", "/runs", NOTES)]
        body = json.dumps(NOTES).encode()
        head = f"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\nContent-Length: {len(body)}"
        caller.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body[:10])
        (tmp_path / "go-on").touch()
        is_ready = process.stdout.readline()
        ready = api.ask("GET", "/ready")
        runs = api.get("/runs")["runs"]
        caller.sendall(body[10:])
        begun = caller.recv(100)
        started = api.ask("POST", "/runs", NOTES)

    assert said == "starting: the catalog and its handlers are imported\n"
    assert health == (200, {"status": "ok"})
    for refused in others:
        assert (refused.status, refused.body["error"]["code"]) == (503, "not_ready")
        assert "the server starts" in refused.body["error"]["message"]
    assert is_ready == f"ready http://127.0.0.1:{api.port}\n"
    assert (ready.status, runs) == (200, [])
    assert begun.startswith(b"HTTP/1.1 201") or command == "dev"
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


#: A catalog that notes each look for garbage.
_LOOKING = """
import gc, pathlib
gc.callbacks.append(lambda *_: pathlib.Path("looked").touch())
from tests.worlds.catalogs.bundle import *
"""


def test_it_looks_for_garbage_while_its_store_is_away(tmp_path: Path) -> None:
    """It answers meanwhile, maybe for hours: each answer kept 7 KB for good."""
    away = {
        "LEASEHOLD_STORE": "firestore://demo-away/(default)",
        "LEASEHOLD_ARTIFACTS_SHARED": "yes",
        "FIRESTORE_EMULATOR_HOST": f"127.0.0.1:{own_port()}",
    }
    looked = tmp_path / "looked"
    with starting(tmp_path, _LOOKING, **away) as (_, api):
        until(lambda: api.ask("GET", "/nothing")[0] == 404)
        looked.unlink(missing_ok=True)

        until(lambda: api.ask("GET", "/nothing") and looked.exists())


@pytest.mark.parametrize(
    ("chosen", "is_on"), [("gc.disable()", "False"), ("gc.set_threshold(50_000)", "True 50000")]
)
def test_a_project_may_say_when_to_look_for_garbage(chosen: str, is_on: str) -> None:
    """Its word, given while it is imported, stays, though no look is made meanwhile."""
    program = (
        "import gc; from leasehold.imports import without_looks_for_garbage\n"
        f"with without_looks_for_garbage(): {chosen}\n"
        "print(gc.isenabled(), gc.get_threshold()[0])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert done.stdout.startswith(is_on)
