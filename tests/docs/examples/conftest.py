from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from examples.remote_worker.catalog import PIPELINES, STEPS
from leasehold.domain.manifest import Manifest
from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.bundles import ROOT
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

WORKER = ROOT / "examples" / "remote_worker" / "worker.py"
TEXT = "Leases end by themselves. A worker renews its lease. Nobody shares a lease.\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The settings of all processes: one store, and leases that are over soon."""
    return {
        **{name: value for name, value in os.environ.items() if "LEASEHOLD" not in name},
        **environ_of(tmp_path),
        "LEASEHOLD_CATALOG": "examples.remote_worker.catalog",
        "PIPELINE_LEASE_TTL_S": "1",
        "PIPELINE_DISPATCH_GRACE_S": "0.2",
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a run is to summarise: five documents."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(1, 6):
        (folder / f"{number}.md").write_text(f"# {number}\n\n{TEXT}")
    return folder


@pytest.fixture
def engine(environ: dict[str, str]) -> Iterator[InProcessEngine]:
    """The bundle: it runs the steps that are not the worker's, and sweeps."""
    with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=1) as engine:
        yield engine


@pytest.fixture
def run(engine: InProcessEngine, folder: Path) -> Manifest:
    """A run that waits for a worker elsewhere."""
    run_id = engine.start("digest", {"folder": str(folder)}).run_id
    until(lambda: engine.show(run_id).claimable)
    return engine.show(run_id)


def ended(engine: InProcessEngine, run: Manifest) -> Manifest:
    return engine.wait(run.run_id, timeout=20)


@pytest.fixture
def url(environ: dict[str, str], engine: InProcessEngine, tmp_path: Path) -> Iterator[str]:
    """manage_lease under the real framework's server, as a process."""
    port = own_port()
    server = "leasehold.devserver.server_main"
    source = str(ROOT / "shared/leasehold/functions" / "manage_lease.py")
    where = ["--source", source, "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "server").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", server, str(os.getpid()), "--target", "manage_lease", *where],
            env={**environ, "WORKERS": "1", "THREADS": "8"},
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: listens(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Worker:
    """The example's worker as a process; it says in lines what happens."""

    def __init__(self, log: Path, url: str, *options: str) -> None:
        self._log = log
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-I", str(WORKER), "--url", url, *options],
                stdout=out,
                stderr=out,
                cwd="/",
                env={},  # it knows nothing of Leasehold: neither its settings nor its package
            )

    @property
    def printed(self) -> str:
        return self._log.read_text()

    def wait_until_it_says(self, text: str) -> None:
        until(lambda: text in self.printed or self.process.poll() is not None)
        assert text in self.printed, self.printed

    def ended(self) -> int:
        return self.process.wait(20)


Begin = Callable[..., Worker]


@pytest.fixture
def begin(url: str, tmp_path: Path) -> Iterator[Begin]:
    """Starts a worker."""
    workers: list[Worker] = []

    def begin(*options: str) -> Worker:
        workers.append(Worker(tmp_path / f"worker-{len(workers)}", url, *options))
        return workers[-1]

    yield begin
    for worker in workers:
        worker.process.kill()
        worker.process.wait()
