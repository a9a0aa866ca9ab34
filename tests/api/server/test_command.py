"""The messages of `leasehold serve` where it cannot serve."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest

from tests.worlds.ports import own_port
from tests.worlds.shell import LEASEHOLD, Shell, only_line

ROOT = Path(__file__).parents[3]
#: The catalog of the shop without the step whose handler is missing.
_WHOLE = """
import shop
from leasehold import Registry
STEPS = Registry("dispatch", [one for one in shop.STEPS if one.key != "lost"])
PIPELINES = Registry("pipelines", [one for one in shop.PIPELINES if "lost" not in one.steps])
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "whole.py").write_text(_WHOLE)
    return Shell(tmp_path, {"LEASEHOLD_CATALOG": "whole"})


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_an_invalid_port_is_refused(shell: Shell, port: str) -> None:
    done = shell.run("serve", "--port", port)

    assert done.returncode == 2
    assert "'--port'" in only_line(done.stderr)


def test_a_port_that_is_taken_is_named(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = shell.run("serve", "--port", str(port))

    assert done.returncode == 2
    assert only_line(done.stderr).startswith(f"error: --port is {port}; allowed: a free port")
    assert "leasehold.db" not in shell.files()


def test_without_its_extra_it_says_what_to_type(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "waitress", None)

    done = shell.run("serve")

    assert done.returncode == 2
    assert only_line(done.stderr) == (
        "error: `leasehold serve` needs waitress, which is not installed. "
        f"Type: pip install -e '{ROOT}[serve]'"
    )


def test_where_the_system_has_no_threads_it_says_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_few(thread: threading.Thread) -> None:
        if thread.name == "worker-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_few)

    done = shell.run("serve", "--port", str(own_port()), "--workers", "3")

    assert done.returncode == 2
    assert only_line(done.stderr) == (
        "error: the system has no threads for --workers 3 (can't start new thread); try fewer."
    )


#: Beside the catalog: SIGTERM comes where a worker is started.
_STOPPED = """
import os, signal, threading
start = threading.Thread.start
def be_stopped(thread):
    if thread.name != "worker-1":
        return start(thread)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except KeyboardInterrupt as interrupt:
        raise RuntimeError("Error calling __set_name__") from interrupt
threading.Thread.start = be_stopped
"""


def test_a_signal_that_a_start_makes_another_error_of_stops_it_in_order(shell: Shell) -> None:
    """As Python does where a class is made meanwhile."""
    (shell.folder / "stopped.py").write_text(_STOPPED + _WHOLE)

    done = shell.process(
        *(*LEASEHOLD, "serve", "--port", str(own_port()), "--workers", "3"),
        LEASEHOLD_CATALOG="stopped",
    )

    assert (done.returncode, only_line(done.stderr)) == (0, "stopped before it was ready")
