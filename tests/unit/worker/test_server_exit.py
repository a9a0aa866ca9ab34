"""The exit of a server, raised by its handler of a signal: what it ends, and what not."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from leasehold.worker.stopping.system_signals import ServerExit

SOON = 60.0


@contextlib.contextmanager
def in_another_thread(make: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """Have another thread be in the middle of a call that it makes this way."""
    begun, is_over = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        is_over.wait(SOON)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(make, call)
        assert begun.wait(SOON)
        try:
            yield
        finally:
            is_over.set()


@pytest.fixture
def server_exit() -> ServerExit:
    return ServerExit()


def test_an_exit_of_an_earlier_attempt_cuts_no_later_one_short(server_exit: ServerExit) -> None:
    """As where a program goes on that caught what its function raised."""
    leave = partial(server_exit.heard, sys.exit)
    with pytest.raises(SystemExit):
        server_exit.held_back(leave)

    assert server_exit.held_back(lambda: "whole") == "whole"


def test_no_code_of_a_project_begins_when_the_server_is_to_leave(server_exit: ServerExit) -> None:
    """The exit waits for its end, and cuts it short no more."""
    begun: list[str] = []

    def attempt() -> None:
        server_exit.heard(sys.exit)
        server_exit.let_through(begun.append, "handler")

    with pytest.raises(SystemExit):
        server_exit.held_back(attempt)

    assert begun == []


def test_an_attempt_in_another_thread_does_not_end_for_the_exit(server_exit: ServerExit) -> None:
    """One of a program of the project: were it to stop, its failure would count as that."""
    waits: dict[str, bool] = {}

    def attempt() -> None:
        server_exit.heard(sys.exit)
        waits["main"] = server_exit.is_waiting
        with ThreadPoolExecutor(1) as threads:
            waits["other"] = threads.submit(lambda: server_exit.is_waiting).result()

    with pytest.raises(SystemExit):
        server_exit.held_back(attempt)

    assert waits == {"main": True, "other": False}


def test_an_attempt_in_another_thread_holds_no_exit_back(server_exit: ServerExit) -> None:
    with in_another_thread(server_exit.held_back), pytest.raises(SystemExit):
        server_exit.heard(sys.exit)


def test_code_of_a_project_in_another_thread_opens_no_attempt_to_the_exit(
    server_exit: ServerExit,
) -> None:
    """The main thread may be between two writes of its attempt."""
    written: list[str] = []

    def attempt() -> None:
        with in_another_thread(server_exit.let_through):
            server_exit.heard(sys.exit)
        written.append("the second")

    with pytest.raises(SystemExit):
        server_exit.held_back(attempt)

    assert written == ["the second"]
