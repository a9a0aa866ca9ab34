"""How a lease names its worker, and whether that worker's process is still there."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from leasehold.worker.stopping.holder import holder_name, host_name, is_gone

IN_OTHER_PIDS = ("unshare", "--user", "--map-root-user", "--pid", "--fork")
ASK = """
import sys
from leasehold.worker.stopping.holder import host_name, is_gone
print(is_gone(sys.argv[1], host=host_name()))
"""


def elsewhere(*options: str) -> tuple[str, ...]:
    """Return the words that run a program among other pids; skip where that is not allowed."""
    words = (*IN_OTHER_PIDS, *options)
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("unshare makes no PID namespace here")
    return words


@pytest.fixture
def ended() -> int:
    """The pid of a process that has ended, and was waited for."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_process_that_runs_is_not_gone() -> None:
    holder = holder_name(host_name(), os.getpid())

    assert not is_gone(holder, host=host_name())


def test_a_process_that_ended_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = holder_name(host_name(), process.pid)
    assert not is_gone(holder, host=host_name())

    process.communicate()

    assert is_gone(holder, host=host_name())


def test_a_process_that_has_the_pid_of_another_is_not_that_one() -> None:
    """A pid is given again; the lease of the first one would wait for its end."""
    assert is_gone(f"box+1a2b/{os.getpid()}@1", host="box+1a2b")


def test_a_process_that_ended_is_gone_before_its_parent_asks() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    holder = holder_name(host_name(), process.pid)
    assert process.stdin is not None

    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert is_gone(holder, host=host_name())
    process.wait()


@pytest.mark.parametrize("options", [("--mount-proc",), ()])
def test_a_holder_among_other_pids_is_not_known_to_be_gone(options: tuple[str, ...]) -> None:
    """Two containers may have one host name: what runs in the one is not there in the other."""
    words = elsewhere(*options)
    holder = holder_name(host_name(), os.getpid())

    child = subprocess.run(
        [*words, sys.executable, "-c", ASK, holder], capture_output=True, text=True, check=True
    )

    assert child.stdout == "False\n"


def test_a_process_that_sees_the_pids_of_others_names_no_scope() -> None:
    """Without a /proc of its own it would find other processes under the pids that it knows."""
    ask = "from leasehold.worker.stopping.holder import host_name; print(host_name())"

    child = subprocess.run(
        [*elsewhere(), sys.executable, "-c", ask], capture_output=True, text=True, check=True
    )

    assert child.stdout == f"{socket.gethostname()}\n"


def test_the_host_of_a_holder_begins_with_its_name() -> None:
    """People read it in the lease."""
    assert host_name().partition("+")[0] == socket.gethostname()
    assert host_name() == host_name()


def test_a_host_without_a_pid_namespace_knows_no_process_gone(ended: int) -> None:
    assert not is_gone(f"box/{ended}@12345", host="box")
    assert is_gone(f"box+1a2b/{ended}@12345", host="box+1a2b")


@pytest.mark.parametrize(
    "holder",
    [
        "",
        "box",
        "box+1a2b/x@1",
        "box+1a2b/1@unknown",
        "other/1@1",
        "box+1a2b/²@x",
        "box+1a2b/٣@x",
        "box+1a2b/0@x",
        "box+1a2b/-1@x",
        "box+1a2b/1\n@x",
        "box+1a2b/1\0@x",
        f"box+1a2b/{'9' * 5000}@x",
        "box+1a2b/\udcff@x",
    ],
)
def test_a_holder_that_says_too_little_is_not_known_to_be_gone(holder: str) -> None:
    """Remote workers choose their own names; `isdigit` and `int` do not agree on all of them."""
    assert not is_gone(holder, host="box+1a2b")
