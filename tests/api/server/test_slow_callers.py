"""Callers that do not read, do not end or say nothing, and their cost for a server."""

from __future__ import annotations

import errno
import os
import re
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pytest
from waitress.adjustments import Adjustments

from leasehold.server import http_server
from leasehold.server.http_server import HttpServer
from leasehold.server.startup import listen
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

BLOCK = b"x" * 2**20
#: More than waitress keeps of an answer before its thread waits for the caller, in blocks.
LARGE = 40
NOTHING_ELSE_HAPPENS_S = 5.0


class Served:
    """A server whose `/large` is 40 MiB, `/page` 200 KiB, and all else a word.

    Attributes:
        asked: the paths that it was asked for, as they came.
        answer_now: has `/late` answered.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer_now = threading.Event()
        self.port = own_port()
        self.http = HttpServer(self._answer, listen("127.0.0.1", self.port), lambda _: 2**30)
        self.http.start()

    @property
    def channels(self) -> list[Any]:
        """The connections that are open."""
        return list(self.http._server.active_channels.values())  # noqa: SLF001 - it is looked into

    def connected(self, received: int | None = None) -> socket.socket:
        """Return a connection that keeps so much of what it does not read."""
        caller = socket.socket()
        if received:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
        caller.settimeout(30)
        caller.connect(("127.0.0.1", self.port))
        return caller

    def answers(self) -> bool:
        """Whether a new connection has its answer."""
        with closing(self.connected()) as caller:
            caller.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            return caller.recv(100).startswith(b"HTTP/1.1 200")

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        path = environ["PATH_INFO"]
        self.asked.append(path)
        if path == "/late":
            self.answer_now.wait(60)
        blocks = {"/large": [BLOCK] * LARGE, "/page": [BLOCK[: 200 * 2**10]]}.get(path, [b"ok"])
        start_response("200 OK", [("Content-Length", str(sum(map(len, blocks))))])
        yield from blocks


@contextmanager
def _serving() -> Iterator[Served]:
    served = Served()
    try:
        yield served
    finally:
        served.http.stop()


def _ask(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_half_of_the_threads_at_most_wait_for_callers_who_do_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of those beyond, the longest silent one is closed, and its thread goes on."""
    monkeypatch.setattr(http_server, "THREADS", 4)
    monkeypatch.setattr(Adjustments, "outbuf_high_watermark", 2**20)
    with _serving() as served, ExitStack() as open_:
        for _ in range(6):
            open_.enter_context(served.connected(4096)).sendall(_ask("/large"))
        until(lambda: len(served.asked) == 6)
        until(lambda: len(served.channels) <= 2)

        assert served.answers()


def test_what_is_kept_for_all_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that never come whole; the longest silent give way."""
    monkeypatch.setattr(http_server, "MAX_KEPT_BYTES", 8 * 2**20)
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {2**29}\r\n\r\n".encode()
    with _serving() as served, ExitStack() as open_:
        for number in range(20):
            caller = open_.enter_context(served.connected())
            caller.sendall(head)
            caller.sendall(BLOCK)
            until(lambda: served.channels and served.channels[-1].kept, NOTHING_ELSE_HAPPENS_S)
            if number == 0:
                first = caller
        assert first.recv(1) == b""

        until(lambda: sum(channel.kept for channel in served.channels) <= 8 * 2**20)
        assert served.answers()


def test_an_answer_of_which_too_little_is_taken_within_a_minute_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A byte now and then is something, so it is never silent for long, and yet holds a thread."""
    monkeypatch.setattr(http_server, "_MINUTE_S", 0.5)
    with _serving() as served, closing(served.connected(4096)) as slow:
        slow.sendall(_ask("/large"))

        def is_over() -> bool:
            slow.recv(2048)
            return not served.channels

        until(is_over)


def test_an_answer_of_which_enough_is_taken_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit counts the time without progress, not the total."""
    monkeypatch.setattr(http_server, "_MINUTE_S", 0.2)
    monkeypatch.setattr(http_server, "MIN_ANSWER_BYTES_PER_MINUTE", 1)
    with _serving() as served, closing(served.connected(65536)) as caller:
        caller.sendall(_ask("/large"))
        came = 0
        while came < LARGE * len(BLOCK):
            block = caller.recv(2**20)
            assert block
            came += len(block)


def test_of_a_packet_of_requests_few_are_answered_to_who_does_not_read() -> None:
    """The system would keep megabytes of answers; each of them has cost its work."""
    with _serving() as served, closing(served.connected(4096)) as caller:
        caller.sendall(_ask("/page") * 200)
        until(lambda: any(one.total_outbufs_len and not one.requests for one in served.channels))

        assert len(served.asked) < 10
        assert served.answers()


def test_those_who_say_nothing_cost_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent connection delays no other."""
    with _serving() as served, ExitStack() as open_:
        for _ in range(300):
            open_.enter_context(served.connected())
        until(lambda: len(served.channels) == 300)
        assert served.answers()
        looks: list[Any] = []
        monkeypatch.setattr(
            http_server._Channel,  # noqa: SLF001 - what is called so often
            "readable",
            _counting(http_server._Channel.readable, looks),  # noqa: SLF001 - as above
        )
        for _ in range(50):
            assert served.answers()

    assert len(looks) < 50 * 50


def _counting(looks_at: Callable[[Any], bool], looks: list[Any]) -> Callable[[Any], bool]:
    def readable(channel: Any) -> bool:
        looks.append(channel)
        return looks_at(channel)

    return readable


def test_a_caller_who_hangs_up_before_the_answer_is_no_problem_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Clients with a time limit do so whenever a store is slow."""
    with _serving() as served:
        with closing(served.connected()) as caller:
            caller.sendall(b"GET /late HTTP/1.1\r\nConnection: close\r\n\r\n")
            until(lambda: served.asked)
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        served.answer_now.set()
        until(lambda: not served.channels)

        assert served.answers()
    of_load = "waitress.queue"  # on a busy machine a request waits for a thread
    assert [record for record in caplog.records if record.name != of_load] == []


def test_health_is_answered_while_every_thread_waits_for_the_store() -> None:
    """Else a service manager would start a process again whose store is away."""
    with _serving() as served, ExitStack() as open_:
        for _ in range(http_server.THREADS + 4):
            open_.enter_context(served.connected()).sendall(_ask("/late"))
        until(lambda: len(served.asked) == http_server.THREADS)
        with closing(served.connected()) as caller:
            caller.settimeout(10)
            caller.sendall(_ask("/health"))
            assert caller.recv(100).startswith(b"HTTP/1.1 200")
        served.answer_now.set()
        until(lambda: served.asked.count("/late") == http_server.THREADS + 4)

        assert served.answers()


def test_without_descriptors_it_says_so_once_and_heals(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_TURN_S", 0.02)
    with _serving() as served, ExitStack() as open_:
        callers = [open_.enter_context(socket.socket()) for _ in range(5)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (callers[-1].fileno() + 20, hard))
        files = []
        try:
            with suppress(OSError):
                while True:
                    files.append(os.dup(0))
            for caller in callers:
                caller.connect(("127.0.0.1", served.port))
            until(lambda: os.strerror(errno.EMFILE) in caplog.text)
            caller.settimeout(0.5)
            caller.sendall(_ask("/"))
            with pytest.raises(TimeoutError):
                caller.recv(1)
        finally:
            for file in files:
                os.close(file)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        caller.settimeout(30)

        assert re.match(rb"HTTP/1.1 200", caller.recv(100))
    assert len(caplog.records) == 1
