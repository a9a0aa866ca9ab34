"""One process for each attempt: what it is given, and what is known of its end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from ast import literal_eval
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leasehold.worker.sandbox.forking.child import Ending
from leasehold.worker.sandbox.forking.children import Children
from leasehold.worker.sandbox.forking.fork_server import ENGINE_ERROR
from tests.chaos.sandbox import programs
from tests.chaos.sandbox.conftest import Open, descriptors, ending_of, is_gone, output_of
from tests.worlds.processes import parent_of
from tests.worlds.waiting import until


def test_a_child_and_its_worker_talk_over_a_socket(open_child: Open) -> None:
    child = open_child("echo")

    child.call.sendall(b"hello")

    assert child.call.recv(100) == b"hello"
    assert child.ending() is None


def test_each_attempt_has_its_own_process(open_child: Open) -> None:
    first, second = open_child("echo"), open_child("echo")

    assert first.pid != second.pid


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("do_nothing", Ending(exit_code=0)),
        ("end_at_once", Ending(exit_code=0)),
        ("exit_with_3", Ending(exit_code=3)),
        ("crash", Ending(signal=signal.SIGSEGV)),
        ("raise_an_error", Ending(exit_code=ENGINE_ERROR)),
    ],
)
def test_it_is_known_how_a_child_ended(open_child: Open, name: str, expected: Ending) -> None:
    child = open_child(name)

    assert ending_of(child) == expected
    assert is_gone(child.pid) or until(lambda: is_gone(child.pid))


def test_what_a_child_and_its_programs_print_is_in_its_output(open_child: Open) -> None:
    child = open_child("print_much")

    printed = output_of(child).splitlines()

    assert sorted(printed) == ["an error", "of C", "of its child", "of the child"]


@pytest.mark.cold  # a zygote has descriptors as well
def test_a_child_has_only_its_own_descriptors_and_session(open_child: Open) -> None:
    others = [open_child("echo") for _ in range(3)]
    child = open_child("list_descriptors")

    kinds, call, is_own_session, score = literal_eval(child.call.recv(1000).decode())

    assert kinds == {0: "/dev/null", 1: "pipe", 2: "pipe", call: "socket"}
    assert is_own_session
    assert score >= 500  # the kernel kills it before its worker
    assert all(other.ending() is None for other in others)


def test_a_child_sees_what_changed_in_its_worker_since_the_fork_server_started(
    open_child: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REMOVED", "there")
    open_child("do_nothing")
    monkeypatch.delenv("REMOVED")
    monkeypatch.setenv("ADDED", "new \udcff")
    monkeypatch.syspath_prepend("unused")
    monkeypatch.setattr(sys, "path", [*sys.path, "added"])
    monkeypatch.chdir(tmp_path)

    child = open_child("say_what_it_sees")

    assert literal_eval(child.call.recv(1000).decode()) == (
        "new \udcff",
        None,
        str(tmp_path),
        "added",
    )


def test_no_environment_is_too_large(open_child: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    open_child("do_nothing")
    for number in range(20):
        monkeypatch.setenv(f"LARGE_{number}", 50_000 * "x")
    monkeypatch.setenv("ADDED", "at last")

    child = open_child("say_what_it_sees")

    assert child.call.recv(1000).startswith(b"('at last'")


def test_two_threads_open_fifty_children_at_once_and_nothing_is_left(children: Children) -> None:
    before = descriptors()

    def open_25() -> list[Ending]:
        opened = [
            children.open(f"{programs.__name__}:wait", wait=programs.never, within=60)
            for _ in range(25)
        ]
        for child in opened:
            child.call.sendall(b"r")
        endings = [ending_of(child) for child in opened]
        for child in opened:
            child.close()
        return endings

    with ThreadPoolExecutor(2) as threads:
        endings = [threads.submit(open_25) for _ in range(2)]
    children.close()

    assert {ending for future in endings for ending in future.result()} == {Ending(exit_code=0)}
    assert descriptors() == before


def test_a_fork_server_keeps_nothing_open_of_a_child_that_has_ended(open_child: Open) -> None:
    server = parent_of(open_child("echo").pid)
    before = descriptors(server)

    assert ending_of(open_child("do_nothing")) == Ending(exit_code=0)

    until(lambda: descriptors(server) == before)


def test_a_child_that_is_closed_is_killed(open_child: Open) -> None:
    child = open_child("ignore_all_signals")
    child.call.recv(1)

    child.close()
    child.close()
    child.kill()

    until(lambda: is_gone(child.pid))


def test_an_attempt_that_is_to_stop_gets_no_process(children: Children) -> None:
    stop = threading.Event()
    open_it = children.open(f"{programs.__name__}:wait", wait=stop.wait, within=60)
    server = parent_of(open_it.pid)
    os.kill(server, signal.SIGSTOP)
    stop.set()

    with pytest.raises(Exception, match="the attempt is to stop"):
        children.open(f"{programs.__name__}:wait", wait=stop.wait, within=60)

    os.kill(server, signal.SIGCONT)
    open_it.close()


@pytest.mark.cold  # what was imported before is memory as well
def test_the_memory_of_a_child_is_known(open_child: Open) -> None:
    child = open_child("eat_memory")
    child.call.recv(1)
    before = child.memory()

    child.call.sendall(b"m")
    child.call.recv(1)

    assert 0 < before < 25 << 20
    assert 50_000_000 <= child.memory() - before < 60_000_000


@pytest.mark.cold  # what was imported before is memory as well
def test_the_memory_that_a_child_shares_with_its_forks_is_counted_once(open_child: Open) -> None:
    child = open_child("share_memory")
    child.call.recv(1)

    assert 50_000_000 <= child.memory() < 100_000_000


@pytest.mark.cold  # what was imported before is memory as well
def test_the_memory_of_a_fork_of_a_child_is_counted(open_child: Open) -> None:
    """Else a handler that has another process do its work would have no limit."""
    child = open_child("eat_memory_in_a_fork")
    child.call.recv(1)

    child.call.sendall(b"m")
    child.call.recv(1)

    assert 50_000_000 <= child.memory() < 100_000_000
