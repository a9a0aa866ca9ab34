"""The leftovers of a dead worker are known by comparison with its server's processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from leasehold.devserver.server_process import (
    Process,
    kill_orphans,
    orphans_of,
    running_processes,
)

#: A server with two workers: each starts a process and tells who that is; ended by its input.
WORKER = """
import subprocess
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
input()
"""
SERVER = f"""
import sys
from subprocess import PIPE, Popen
workers = [Popen([sys.executable, "-c", {WORKER!r}], stdin=PIPE, stdout=PIPE) for _ in range(2)]
for it in workers:
    print(it.pid, int(it.stdout.readline()), flush=True)
input()
"""


def row(pid: int, parent: int, session: int = 10, holder: str | None = None) -> Process:
    return Process(pid, parent, session, started=str(pid), holder=holder)


def table(*rows: Process) -> dict[int, Process]:
    return {it.pid: it for it in rows}


def test_what_descends_from_the_server_is_not_left_behind() -> None:
    running = table(row(1, 0, 1), row(10, 1), row(11, 10), row(12, 11))

    assert orphans_of(running, 10) == set()


def test_a_process_that_was_given_away_is_left_with_all_below_it() -> None:
    running = table(row(1, 0, 1), row(10, 1), row(11, 10), row(20, 1), row(21, 20))

    assert orphans_of(running, 10) == {row(20, 1), row(21, 20)}


def test_what_is_of_another_session_is_left_alone() -> None:
    running = table(row(1, 0, 1), row(10, 1), row(20, 1, 20), row(21, 20, 20))

    assert orphans_of(running, 10) == set()


def test_all_is_left_behind_where_the_server_is_gone() -> None:
    running = table(row(1, 0, 1), row(11, 1), row(12, 11))

    assert orphans_of(running, 10) == {row(11, 1), row(12, 11)}


def test_what_names_the_dead_worker_is_left_behind_wherever_it_went() -> None:
    below, away = row(12, 11, holder="dead"), row(20, 1, 20, holder="dead")
    running = table(row(1, 0, 1), row(10, 1), row(11, 10), below, away)

    assert orphans_of(running, 10, "dead") == {below, away}


def test_an_orphan_that_names_a_living_worker_is_not_the_dead_ones() -> None:
    """Any other of the session is: it was forked, and has no mark."""
    nameless, others = row(20, 1), row(21, 1, holder="living")
    running = table(row(1, 0, 1), row(10, 1), row(11, 10), nameless, others)

    assert orphans_of(running, 10, "dead") == {nameless}
    assert orphans_of(running, 10) == {nameless, others}  # once the server itself is gone


def test_a_table_that_goes_round_in_circles_ends() -> None:
    """/proc is read while it changes."""
    running = table(row(11, 12), row(12, 11))

    assert orphans_of(running, 10) == {row(11, 12), row(12, 11)}


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_only_what_the_dead_worker_started_is_killed(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    dead, left = map(int, server.stdout.readline().split())
    living, kept = map(int, server.stdout.readline().split())
    assert kill_orphans(server.pid) == 0

    os.kill(dead, signal.SIGKILL)
    killed = 0
    while not killed:  # the kernel takes a moment
        killed = kill_orphans(server.pid)

    running = running_processes()
    assert killed == 1
    assert not {dead, left} & running.keys()
    assert {server.pid, living, kept} <= running.keys()
