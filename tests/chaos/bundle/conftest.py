from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasehold.devserver.server import DevServer
from tests.worlds.bundles import ROOT, Api, dev_server, settings
from tests.worlds.ports import own_port

Begin = Callable[..., tuple[subprocess.Popen[str], "Api"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundle")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[DevServer]:
    with dev_server(folder, tick_s=0.5) as server:
        yield server


@pytest.fixture(scope="module")
def api(server: DevServer) -> Api:
    return Api(server.url)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts `leasehold dev` on the test's own folder; it is ready when it returns."""
    started: list[subprocess.Popen[str]] = []

    def begin(**environ: str) -> tuple[subprocess.Popen[str], Api]:
        port = own_port()
        words = ["dev", "--port", str(port), "--workers", "2", "--data", str(tmp_path / "data")]
        with (tmp_path / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "leasehold", *words],
                env=settings(tmp_path) | environ,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == f"ready http://127.0.0.1:{port}\n", (tmp_path / "log").read_text()
        return process, Api(f"http://127.0.0.1:{port}")

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()  # unread: one that it left behind may have it open forever
