"""A provider in its own process, which takes announcements, or does not, or never says so.

A request names its announcement by the header `webhook-id`. For some requests the sender is killed
as they are taken: it says before which (`POST /kill`), and by which process id. A sender that
leaves its fate to the provider names its process with each request (`x-process`), and is killed as
that is taken, or told to kill itself once it has the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any, Final

from tests.chaos.storm.chance import ENDS_OF_SENDERS, WEATHER, Kill, Weather, draw, subject_of
from tests.chaos.storm.processes import forked_with_pipe

#: What senders wait for an answer, in seconds; a slow one comes in time, a silent one never.
TIMEOUT_S: Final = 0.4
_SLOW_S: Final = 0.1
_PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Taken:
    """An announcement that the provider took: one line for each time it did.

    Args:
        subject: the delivery, `run:occurrence:channel`.
        key: what came as its idempotency key.
        answered: whether the provider said so.
    """

    subject: str
    key: str
    answered: bool


@dataclass(slots=True)
class _Book:
    """What the provider knows."""

    seed: int | None
    requests: Counter[str] = field(default_factory=Counter)
    taken: list[Taken] = field(default_factory=list)
    weathers: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    to_kill: dict[str, int] = field(default_factory=dict)
    writing: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)

    def weather_of(self, subject: str) -> Weather | None:
        """Return the weather of a request that has just been counted."""
        if self.seed is None:
            return None
        return draw(WEATHER, self.seed, "weather", subject, self.requests[subject])


class ProviderProcess:
    """The provider, as seen from outside.

    Attributes:
        url: where it listens.
        deaf_url: where it does not, and no other can.
    """

    def __init__(self, pipe: Connection, port: int, deaf: int) -> None:
        self._pipe = pipe
        self.url = f"http://127.0.0.1:{port}"
        self.deaf_url = f"http://127.0.0.1:{deaf}"

    @property
    def taken(self) -> Sequence[Taken]:
        """All that it took so far."""
        found: Sequence[Taken] = self._ask("taken")
        return found

    @property
    def weathers(self) -> Counter[str]:
        """How often it did what."""
        found: Counter[str] = self._ask("weathers")
        return found

    @property
    def ends(self) -> Counter[str]:
        """How often it ended a sender that leaves that to it, and where."""
        found: Counter[str] = self._ask("ends")
        return found

    def _ask(self, what: str) -> Any:
        self._pipe.send(what)
        assert self._pipe.poll(_PATIENCE_S), "the provider does not answer"
        return self._pipe.recv()


@contextmanager
def provider(seed: int | None) -> Iterator[ProviderProcess]:
    """Run a provider; without a seed it takes all it gets."""
    process, here = forked_with_pipe(serve, seed)
    try:
        assert here.poll(_PATIENCE_S), "the provider does not start"
        yield ProviderProcess(here, *here.recv())
    finally:
        here.close()
        process.join(_PATIENCE_S)
        process.kill()
        process.join()


def serve(pipe: Connection, seed: int | None) -> None:
    """Answer requests until the last caller is gone."""
    book = _Book(seed)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"book": book}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        pipe.send((server.server_address[1], deaf.getsockname()[1]))
        with contextlib.suppress(EOFError, OSError):
            while what := pipe.recv():
                with book.writing:
                    pipe.send(getattr(book, what))
    book.closing.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Say nothing: senders are killed."""


class _Handler(BaseHTTPRequestHandler):
    book: _Book
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the name that http.server calls
        """Take an announcement, or do what its weather is."""
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if self.path == "/kill":
            self._note_kill(json.loads(body))
            return
        key = self.headers["webhook-id"]
        book, subject = self.book, subject_of(key)
        with book.writing:
            book.requests[subject] += 1
            weather = book.weather_of(subject)
            victim = book.to_kill.pop(subject, None)
            end = self._end_of_sender(subject)
            if end is not None:
                book.ends[end] += 1
            if end is Kill.MEANWHILE:
                victim = int(self.headers["x-process"])
            if victim is not None:
                weather = Weather.SILENT
            if weather not in (Weather.ERROR, Weather.BUSY):
                book.taken.append(Taken(subject, key, answered=weather is not Weather.SILENT))
            book.weathers[str(weather)] += 1
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        self._answer(weather, ("x-end", end or ""))

    def _end_of_sender(self, subject: str) -> Kill | None:
        """Return how a sender ends that leaves it to the provider; it survives a second request."""
        book = self.book
        if not self.headers["x-process"] or book.requests[subject] > 1:
            return None
        return draw(ENDS_OF_SENDERS, book.seed, "end", subject)

    def _answer(self, weather: Weather | None, end: tuple[str, str]) -> None:
        if weather is Weather.SILENT:
            self.book.closing.wait(3 * TIMEOUT_S)
            self.close_connection = True
        elif weather is Weather.ERROR:
            self._say(500, end)
        elif weather is Weather.BUSY:
            self._say(429, end, ("retry-after", "1"))
        else:
            if weather is Weather.SLOW:
                self.book.closing.wait(_SLOW_S)
            self._say(200, end)

    def _note_kill(self, order: dict[str, Any]) -> None:
        with self.book.writing:
            self.book.to_kill[order["subject"]] = order["pid"]
        self._say(200)

    def _say(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("content-length", "0")):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""
