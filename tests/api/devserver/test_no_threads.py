"""The dev server while the system has no thread: what needs one comes later, nothing is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.devserver.cloud_tasks import HttpTask
from leasehold.devserver.function_processes import (
    Function,
    FunctionProcesses,
    entry_folder,
)
from leasehold.devserver.server import CrashDetector
from leasehold.testing import InProcessEngine
from tests.chaos.outages.test_threads import no_new_threads
from tests.worlds.builders import environ_of
from tests.worlds.bundles import Api, settings
from tests.worlds.ports import own_port
from tests.worlds.waiting import until


@pytest.fixture
def lines() -> list[str]:
    """The lines for people."""
    return []


@pytest.fixture
def processes(tmp_path: Path, lines: list[str]) -> Iterator[FunctionProcesses]:
    function, folder = Function("serve_api", own_port()), entry_folder("serve_api")
    environ = settings(tmp_path) | environ_of(tmp_path)
    processes = FunctionProcesses(function, folder, environ, lines.append)
    processes.start()
    try:
        processes.wait_until_ready(time.monotonic() + 30)
        yield processes
    finally:
        processes.request_stop()
        processes.wait_or_kill(time.monotonic() + 5, lambda: False)


def server_pid(processes: FunctionProcesses) -> int:
    return processes._servers[-1].pid  # noqa: SLF001 - whom somebody sends a signal


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_server_that_was_stopped_then_is_replaced_once_there_are_threads(
    processes: FunctionProcesses, lines: list[str]
) -> None:
    """Its supervisor drains it itself; a server that cannot be watched does not stay."""
    first = server_pid(processes)
    with no_new_threads():
        os.kill(first, signal.SIGTERM)
        until(lambda: any("cannot be started" in line for line in lines))
        assert not is_running(first)
    processes.wait_until_ready(time.monotonic() + 30)

    assert Api(processes.function.url).call("/health") == {"status": "ok"}
    assert len(processes._servers) == 1  # noqa: SLF001 - none is left beside it


def test_a_crash_that_no_thread_can_look_into_delays_nothing(
    engine_at_rest: InProcessEngine, lines: list[str]
) -> None:
    """The lease of that worker expires then, and the sweep comes."""
    detector = CrashDetector(
        engine_at_rest.engine, is_gone=lambda _: True, kill_orphans=print, report=lines.append
    )
    body = b'{"runId": "r-1", "generation": 1}'
    task = HttpTask("t", "http://127.0.0.1/", SystemClock().now(), body=body)
    with no_new_threads():
        detector.on_dropped(task)
    stopped = threading.Thread(target=detector.stop)
    stopped.start()
    stopped.join(30)

    assert not stopped.is_alive()
    assert lines == []


@pytest.fixture
def engine_at_rest(tmp_path: Path) -> Iterator[InProcessEngine]:
    environ = settings(tmp_path) | environ_of(tmp_path)
    with InProcessEngine(environ=environ, workers=0) as engine:
        yield engine
