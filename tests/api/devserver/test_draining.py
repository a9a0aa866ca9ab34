"""A dev server that is told to stop lets attempts end, but not forever."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from leasehold.cli.stop_signals import SAME_SIGNAL_S
from leasehold.devserver.server import DevOptions, DevServer
from leasehold.devserver.server_process import running_processes
from tests.worlds.bundles import ROOT, Api, settings
from tests.worlds.ports import own_port
from tests.worlds.waiting import until


def environ_of(folder: Path) -> dict[str, str]:
    return settings(folder) | {
        "LEASEHOLD_CATALOG": "tests.worlds.catalogs.bundle_of_children",
        "PIPELINE_LEASE_TTL_S": "30",
    }


def start_deaf_run(api: Api, folder: Path) -> tuple[str, int, int]:
    """Start a run whose step hears of no shutdown; return it, its worker and that one's child."""
    (folder / "hold-parent").touch()
    run_id = api.call("/runs", {"pipeline": "parents", "input": {}})["runId"]
    file = folder / "children"
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    worker, child = map(int, file.read_text().split()[1:])
    return run_id, worker, child


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own server
        return answer.status


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM]
)
def test_a_second_signal_kills_what_still_runs(tmp_path: Path, number: signal.Signals) -> None:
    port = own_port()
    log = tmp_path / "log"
    words = ["dev", "--port", str(port), "--data", str(tmp_path / "data")]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "leasehold", *words],
            env=environ_of(tmp_path),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        _, worker, child = start_deaf_run(Api(f"http://127.0.0.1:{port}"), tmp_path)
        process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in log.read_text())
        heard = time.monotonic()  # at the latest
        until(lambda: "SIGTERM: shutting down; 1 lease held" in log.read_text())
        until(
            lambda: time.monotonic() - heard > SAME_SIGNAL_S
        )  # until then it is the first one again

        process.send_signal(number)
        code = process.wait(60)
    finally:
        process.kill()
        process.communicate()

    assert code == 0
    assert "LEASE_AT_SHUTDOWN" not in log.read_text()  # which comes after 7 s
    assert not {worker, child} & running_processes().keys()
    lines = [line for line in log.read_text().splitlines() if not line.startswith("{")]
    assert lines[-2:] == [
        "stopping: running attempts may end; once more to kill them",
        "killed: what was running goes on at the next start",
    ]


def test_the_queue_takes_tasks_until_the_last_server_ended(tmp_path: Path) -> None:
    """An attempt that ends hands its step on, and the manifest says that its task is created."""
    options = DevOptions(
        port=own_port(), data=tmp_path / "data", environ=environ_of(tmp_path), workers=1
    )
    server, hurry = DevServer(options, print), threading.Event()
    stopping = threading.Thread(target=server.stop, args=(hurry.is_set,))
    try:
        server.start()
        queue = f"{server.tasks_url}/v2/projects/local/locations/local/queues/parent"
        _, worker, _ = start_deaf_run(Api(server.url), tmp_path)

        stopping.start()
        until(lambda: is_closed(server.url))  # the other servers have ended
        answers = get(queue), worker in running_processes()
    finally:
        hurry.set()
        if stopping.ident is None:
            stopping.start()
        stopping.join()

    assert answers == (200, True)
    assert is_closed(server.tasks_url)


def is_closed(url: str) -> bool:
    try:
        get(url)
    except urllib.error.HTTPError:
        return False
    except OSError:
        return True
    return False
