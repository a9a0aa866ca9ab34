from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.worker.sandbox.forking.child import Child, Ending
from leasehold.worker.sandbox.forking.children import Children
from leasehold.worker.sandbox.sandbox import Sandbox
from tests.chaos.sandbox import programs
from tests.worlds.attempts import Attempts
from tests.worlds.processes import is_running

Open = Callable[[str], Child]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")


@pytest.fixture
def children() -> Iterator[Children]:
    with closing(Children(programs.ENTRY)) as children:
        yield children


@pytest.fixture
def impatient_children() -> Iterator[Children]:
    """Replaces what does not answer at once."""
    with closing(Children(programs.ENTRY, patience=0.5)) as children:
        yield children


@pytest.fixture
def open_child(children: Children) -> Iterator[Open]:
    """Opens children of `programs`, and closes what is left of them."""
    opened = []

    def open_it(name: str) -> Child:
        child = children.open(f"{programs.__name__}:{name}", wait=programs.never, within=60)
        child.call.settimeout(60)
        opened.append(child)
        return child

    yield open_it
    for child in opened:
        child.close()


class Worker:
    """A program that uses children, as a worker does."""

    def __init__(self, name: str, user: int | None = None) -> None:
        self.call, far = socket.socketpair()
        self.call.settimeout(60)
        program = (
            f"import socket; from {programs.__name__} import {name}; "
            f"{name}(socket.socket(fileno={far.fileno()}))"
        )
        with far:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", program],
                pass_fds=[far.fileno()],
                cwd=Path(__file__).parents[3],
                user=user,
            )

    def says(self) -> str:
        """Return all that it says until it ends."""
        return b"".join(iter(lambda: self.call.recv(1000), b"")).decode()

    def close(self) -> None:
        self.call.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start_worker() -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(name: str, user: int | None = None) -> Worker:
        started.append(Worker(name, user))
        return started[-1]

    yield start
    for worker in started:
        worker.close()


def ending_of(child: Child, seconds: float = 60) -> Ending:
    """Wait until a child has ended; return how."""
    ready, _, _ = select.select([child.status], [], [], seconds)
    assert ready, "it did not end"
    ending = child.ending()
    assert ending is not None
    return ending


def output_of(child: Child) -> str:
    """Return what a child printed until it ended."""
    return b"".join(iter(lambda: os.read(child.output, 1000), b"")).decode()


def is_gone(pid: int) -> bool:
    """Return whether a process has ended and was reaped."""
    return not Path(f"/proc/{pid}").exists()


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; one that init adopted is reaped when init sees to it."""
    return not is_running(pid)


def descriptors(of: int | str = "self") -> set[str]:
    """Return what is open in this process, or in another one."""
    return {entry.name for entry in Path(f"/proc/{of}/fd").iterdir()}


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox()) as sandbox:
        yield sandbox


@pytest.fixture
def attempts(sandbox: Sandbox, tmp_path: Path) -> Attempts:
    return Attempts(sandbox, tmp_path)
