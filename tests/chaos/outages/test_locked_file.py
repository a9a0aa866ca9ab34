"""A stop beside a SQLite file that another process has locked: it ends, and the leases run out."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leasehold.in_process import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.catalogs.sample import ENTERED, GO_ON, PIPELINES, STEPS
from tests.worlds.servers import servers
from tests.worlds.shell import Shell
from tests.worlds.waiting import until

#: Longer than a stop may take on a busy machine, far shorter than the writer waits for a lock.
SOON_S = 20.0
_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Have another process hold the writer's lock until the end of the block."""
    command = [sys.executable, "-c", _LOCK, str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        yield
        holder.communicate()


def lease_of(file: Path) -> object:
    with sqlite3.connect(file) as connection:
        ((lease,),) = connection.execute("SELECT body ->> '$.position.lease' FROM runs").fetchall()
    connection.close()
    return lease


@pytest.mark.sandboxed
def test_serve_ends_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with servers(tmp_path) as begin:
        process, api = begin()
        run_id = api.start({}, pipeline="listens")
        until((tmp_path / "told").exists)

        with locked(tmp_path / "leasehold.db"):
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=SOON_S)

        assert process.returncode == 0, said
        assert "the store did not answer in time" in said
        assert lease_of(tmp_path / "leasehold.db") is not None
        _, api = begin()
        assert api.ended(run_id)["status"] == "COMPLETED"


def test_a_command_ends(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "hold").touch()
    process = shell.begin("start", "order", "--input", '{"amount": 3}', "--in-process")
    until((tmp_path / "charging").exists)

    with locked(tmp_path / ".leasehold" / "leasehold.db"):
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=SOON_S)

    assert process.returncode == 128 + signal.SIGTERM, said
    assert "Traceback" not in said


def test_a_command_that_waits_for_the_lock_to_start_a_run_ends(tmp_path: Path) -> None:
    """Its main thread hears a signal although it waits for the file itself."""
    shell = Shell(tmp_path)
    assert shell.run("start", "order", "--input", '{"amount": 3}', "--in-process").returncode == 0

    with locked(tmp_path / ".leasehold" / "leasehold.db"):
        process = shell.begin("start", "order", "--input", '{"amount": 4}', "--in-process")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SOON_S)

    assert process.returncode == 128 + signal.SIGINT, said


def test_an_engine_closes(tmp_path: Path) -> None:
    """Once the file and the handler have let go, a second call closes the rest."""
    key = "locked"
    run_id = f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    ENTERED[run_id], GO_ON[run_id] = threading.Event(), threading.Event()
    engine = InProcessEngine(STEPS, PIPELINES, environ=environ_of(tmp_path), workers=2)
    try:
        engine.start("holds", {"n": 1}, idempotency_key=key)
        assert ENTERED[run_id].wait(60)
        with locked(tmp_path / "runs.db"):
            began = time.monotonic()
            engine.close()
            took = time.monotonic() - began
    finally:
        GO_ON[run_id].set()
    until(lambda: not any(thread.is_alive() for thread in engine._threads))  # noqa: SLF001
    engine.close()

    assert took < SOON_S


def test_outages_one_after_another_give_no_run_up(tmp_path: Path) -> None:
    """Each outlasts the lease, and the step makes no progress: it has not failed for that."""
    key = "flapping"
    run_id = f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    ENTERED[run_id], GO_ON[run_id] = threading.Event(), threading.Event()
    environ = environ_of(tmp_path) | {
        "PIPELINE_LEASE_TTL_S": "2",
        "PIPELINE_HEARTBEAT_S": "0.2",
        "PIPELINE_MAX_INTERRUPTIONS": "1",
        "PIPELINE_MIN_BACKOFF_S": "0.1",
        "PIPELINE_MAX_BACKOFF_S": "0.1",
    }
    with InProcessEngine(STEPS, PIPELINES, environ=environ, workers=2) as engine:
        engine.start("obeys", {"n": 1}, idempotency_key=key)
        for _ in range(4):
            assert ENTERED[run_id].wait(60)
            ENTERED[run_id].clear()
            with locked(tmp_path / "runs.db"):
                until(lambda: engine.held_runs()[0].stop.reason is not None)
        assert ENTERED[run_id].wait(60)
        GO_ON[run_id].set()
        run = engine.wait(run_id, 60)

    attempts = run.steps["obey"].attempts
    assert (run.status, run.position.interruptions, attempts.expired) == ("COMPLETED", 0, 0)
    assert attempts.deferred == 4
