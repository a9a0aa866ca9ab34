"""The dev server while its process may open no more: it says so, and ends."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.devserver.function_processes import own_port
from leasehold.devserver.loopback_server import LoopbackServer


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open so many more descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(int(one.name) for one in Path("/proc/self/fd").iterdir()) + 1 + count
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)


@pytest.mark.parametrize("left", [0, 1])
def test_a_port_that_cannot_be_looked_for_is_an_error_and_no_search_without_end(left: int) -> None:
    """The one that is left is for the socket that keeps the port."""
    with descriptors_left(left), pytest.raises(OSError, match="Too many open files") as refused:
        own_port()

    assert refused.value.errno == errno.EMFILE


def test_a_server_of_this_process_stops_though_nothing_can_be_opened_to_wake_it() -> None:
    server = LoopbackServer(None, "unused")
    server.start()
    stops = threading.Thread(target=server.stop, daemon=True)

    with descriptors_left(0):
        stops.start()
        stops.join(10)

        assert not stops.is_alive()
