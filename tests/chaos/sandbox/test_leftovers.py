"""No process is left behind, whatever a child starts and whatever is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from leasehold.worker.sandbox.forking.child import Child, Ending
from leasehold.worker.sandbox.forking.children import Children
from tests.chaos.sandbox import programs
from tests.chaos.sandbox.conftest import Open, Worker, ending_of, has_ended, is_gone
from tests.worlds.processes import is_stopped, parent_of
from tests.worlds.waiting import until

Start = Callable[..., Worker]


def _with_20_left_behind(open_child: Open) -> tuple[Child, list[int]]:
    return _with_left_behind(open_child, "leave_20_behind", 20)


def _with_left_behind(open_child: Open, program: str, count: int) -> tuple[Child, list[int]]:
    child = open_child(program)
    pids = [int(pid) for pid in child.call.recv(1000).split()]
    assert len(pids) == count
    assert not any(map(is_gone, pids))
    return child, pids


@pytest.mark.parametrize(
    ("program", "count"), [("leave_20_behind", 20), ("leave_a_family_behind", 2)]
)
def test_what_a_child_leaves_behind_is_killed(open_child: Open, program: str, count: int) -> None:
    child, pids = _with_left_behind(open_child, program, count)

    child.call.sendall(b"e")

    assert ending_of(child) == Ending(exit_code=0)
    until(lambda: all(map(is_gone, pids)))
    assert open_child("do_nothing")


def test_the_end_of_a_child_is_reported_when_all_that_it_leaves_behind_is_killed() -> None:
    """Else the next attempt begins beside it. It is not reaped before: its pid is its group's."""
    with closing(Children(programs.ENTRY_WITH_STOPS)) as children:
        name = f"{programs.__name__}:leave_one_behind"
        with closing(children.open(name, wait=programs.never, within=60)) as child:
            server, left = parent_of(child.pid), int(child.call.recv(100))
            child.call.sendall(b"e")

            until(lambda: is_stopped(server))  # just before the kill
            assert child.ending() is None
            assert not is_gone(child.pid)
            os.kill(server, signal.SIGCONT)

            assert ending_of(child) == Ending(exit_code=0)
            until(lambda: is_gone(left))


def test_what_a_killed_child_leaves_behind_is_killed(open_child: Open) -> None:
    child, pids = _with_20_left_behind(open_child)
    other = open_child("echo")

    child.kill()

    assert ending_of(child) == Ending(signal=signal.SIGKILL)
    until(lambda: all(map(is_gone, pids)))
    assert other.ending() is None


def test_a_child_that_closed_all_its_descriptors_is_killed(open_child: Open) -> None:
    child = open_child("close_everything")
    assert child.call.recv(1) == b""

    child.kill()

    assert ending_of(child) == Ending(signal=signal.SIGKILL)


def test_a_child_is_killed_without_the_fork_server(open_child: Open) -> None:
    child = open_child("ignore_all_signals")
    child.call.recv(1)
    server = parent_of(child.pid)
    os.kill(server, signal.SIGSTOP)

    child.kill()

    assert child.call.recv(1) == b""
    os.kill(server, signal.SIGCONT)
    assert ending_of(child) == Ending(signal=signal.SIGKILL)


def test_a_stopped_fork_server_ends_at_once_with_its_worker(
    children: Children, open_child: Open
) -> None:
    """A worker that ends has a second for that, and the fork server would never hear of it."""
    child, pids = _with_20_left_behind(open_child)
    server = parent_of(child.pid)
    os.kill(server, signal.SIGSTOP)
    began = time.monotonic()

    children.close()

    assert time.monotonic() - began < 4  # it is killed after 5
    until(lambda: all(map(has_ended, [server, child.pid, *pids])))


def test_a_killed_fork_server_takes_all_along_and_the_next_one_is_there(open_child: Open) -> None:
    child, pids = _with_20_left_behind(open_child)
    server = parent_of(child.pid)

    os.kill(server, signal.SIGKILL)

    assert ending_of(child) == Ending()
    child.close()
    until(lambda: all(map(has_ended, [server, child.pid, *pids])))
    assert ending_of(open_child("do_nothing")) == Ending(exit_code=0)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_a_killed_worker_takes_all_along(start_worker: Start, number: int) -> None:
    worker = start_worker("worker_with_leftovers")
    pids = [int(pid) for pid in worker.call.recv(1000).split()]
    assert len(pids) == 22

    worker.process.send_signal(number)

    worker.process.wait()
    until(lambda: all(map(has_ended, pids)))


def test_a_fork_server_ends_with_its_worker_though_a_copy_has_its_socket(
    start_worker: Start,
) -> None:
    worker = start_worker("worker_whose_library_forks")
    server, copy = map(int, worker.call.recv(1000).split())

    worker.process.kill()

    worker.process.wait()
    try:
        until(lambda: has_ended(server))
    finally:
        os.kill(copy, signal.SIGKILL)


def test_a_child_ends_with_its_fork_server_before_its_worker_looks(open_child: Open) -> None:
    child = open_child("echo")

    os.kill(parent_of(child.pid), signal.SIGKILL)

    until(lambda: has_ended(child.pid))


def test_a_worker_that_ends_reaps_its_fork_server(start_worker: Start) -> None:
    worker = start_worker("worker_that_just_ends")

    server = int(worker.says())

    assert worker.process.wait() == 0
    assert is_gone(server)


def test_a_signal_for_the_worker_ends_neither_fork_server_nor_child(open_child: Open) -> None:
    child = open_child("echo")
    for pid in (parent_of(child.pid), child.pid):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGHUP)

    child.call.sendall(b"hello")

    assert child.call.recv(100) == b"hello"
    assert open_child("echo").ending() is None


def test_a_fork_of_the_worker_has_a_fork_server_of_its_own(start_worker: Start) -> None:
    worker = start_worker("worker_that_forks")

    said = dict(line.split(maxsplit=1) for line in worker.says().splitlines())

    server = {who: said[who].split()[1] for who in ("first", "again", "copy")}
    assert server["first"] == server["again"] != server["copy"]
    assert said["lives"] == "1"
    assert worker.process.wait() == 0
