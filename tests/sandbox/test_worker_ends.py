"""A server that ends, however it does, leaves nobody behind: neither handlers nor children."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasehold.devserver.function_processes import free_port
from leasehold.devserver.orphan_processes import running_processes
from tests.bundle.conftest import ROOT, Api, settings
from tests.waiting import until

Begun = tuple[subprocess.Popen[str], Api]

#: The handler and its 20 children, some of them in the second generation.
NOTED = 21


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], Begun]]:
    """Starts servers on the test's own file; each is ready when it returns."""
    started: list[subprocess.Popen[str]] = []

    def begin() -> Begun:
        port = free_port()
        environ = {
            "LEASEHOLD_STORE": f"sqlite:///{tmp_path / 'leasehold.db'}",
            "LEASEHOLD_ARTIFACTS": f"file://{tmp_path / 'artifacts'}",
            "LEASEHOLD_CATALOG": "tests.sandbox.long_steps",
            "PIPELINE_LEASE_TTL_S": "600",  # nobody waits for the end of one
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "leasehold", "serve", "--port", str(port)],
            env=settings(tmp_path) | environ,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready http://127.0.0.1:{port}\n"
        return process, Api(f"http://127.0.0.1:{port}")

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_what_a_server_ran_ends_with_it_and_is_run_again(
    begin: Callable[[], Begun], tmp_path: Path
) -> None:
    """The one is killed and can do nothing about it; the other is asked to stop."""

    def start(api: Api, name: str) -> tuple[str, set[int]]:
        folder = tmp_path / name
        folder.mkdir()
        run_id = api.start({"folder": str(folder)}, pipeline="long")
        until(lambda: len(list(folder.iterdir())) == NOTED)
        return run_id, {int(path.name) for path in folder.iterdir()}

    first, api = begin()
    run_id, pids = start(api, "killed")

    first.kill()

    until(lambda: not pids & set(running_processes()))
    second, api = begin()
    done = api.ended(run_id)
    counts = done["steps"]["has_many_children"]["attempts"]
    assert (counts["expired"], counts["failed"]) == (1, 0)

    run_id, pids = start(api, "stopped")
    second.send_signal(signal.SIGTERM)
    _, said = second.communicate(timeout=60)

    assert second.returncode == 0, said
    until(lambda: not pids & set(running_processes()))
    _, api = begin()
    done = api.ended(run_id)
    counts = done["steps"]["has_many_children"]["attempts"]
    assert (counts["interrupted"], counts["failed"]) == (1, 0)
