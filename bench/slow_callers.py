"""How soon `leasehold serve` answers others, beside callers that do not read and that say nothing.

A real server is asked for `/health`, each time by a new connection, first alone, then while 16
callers who do not read their answers and 1,000 who say nothing connect and stay. What its bounds
cost a caller who behaves is the pace on one connection, against waitress itself with an
application that does nothing.
"""

from __future__ import annotations

import argparse
import http.client
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.measuring import Figure, figure, report
from tests.worlds.ports import own_port

NON_READERS: Final = 16
SILENT: Final = 1000
#: Files that this process and the server may open; half of them are for connections there.
FILES: Final = 4096

_RUNS: Final = 100
_WAIT_S: Final = 60.0
#: What a caller asks for without reading: pages that are larger than what the system keeps.
_PACKET: Final = 500
_BARE: Final = """
import sys, waitress
def answer(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", "15")])
    return [b'{"status":"ok"}']
waitress.serve(answer, host="127.0.0.1", port=int(sys.argv[1]), threads=16, _quiet=True)
"""


class Callers:
    """Those who call a server on this machine.

    Args:
        port: that of the server.
    """

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str = "/health") -> float:
        """Return after how many seconds a new connection had its answer."""
        began = time.perf_counter()
        self._ask(path, None)
        return time.perf_counter() - began

    def check_ready(self) -> None:
        """Raise OSError or AssertionError where it does not work yet."""
        self._ask("/ready", None)

    def start(self, number: int) -> None:
        """Start a run whose row in a list is long."""
        run = {"pipeline": "no-op", "input": {"number": number}}
        self._ask("/runs", json.dumps(run | {"idempotencyKey": f"{number:0200}"}))

    def pace(self, requests: int) -> float:
        """Return how many requests a second are answered, one after the other."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_WAIT_S)
        began = time.perf_counter()
        for _ in range(requests):
            connection.request("GET", "/health")
            connection.getresponse().read()
        connection.close()
        return requests / (time.perf_counter() - began)

    @contextmanager
    def crowd(self) -> Iterator[None]:
        """Have those who do not read, and those who say nothing, until the end of the block."""
        packet = f"GET /manifests?limit=100 HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
        with ExitStack() as open_:
            for _ in range(NON_READERS):
                caller = open_.enter_context(socket.socket())
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                caller.connect(("127.0.0.1", self.port))
                caller.setblocking(False)
                caller.send(packet.encode() * _PACKET)
            for _ in range(SILENT):
                open_.enter_context(socket.create_connection(("127.0.0.1", self.port), _WAIT_S))
            yield

    def _ask(self, path: str, body: str | None) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_WAIT_S)
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request("POST" if body else "GET", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status in (HTTPStatus.OK, HTTPStatus.CREATED), answer.status


def _longest(callers: Callers, asked: int) -> float:
    return max(callers.ask() for _ in range(asked))


def _longest_beside_a_crowd(callers: Callers, asked: int) -> tuple[float, float]:
    """Return the longest of the answers while a crowd comes and stays, and the pace then."""
    took: list[float] = []
    over = threading.Event()

    def keep_asking() -> None:
        while not over.is_set():
            took.append(callers.ask())

    asking = threading.Thread(target=keep_asking)
    asking.start()
    with callers.crowd():
        pace = callers.pace(asked)
        while len(took) < asked:
            time.sleep(0.01)
        over.set()
        asking.join()
    return max(took), pace


@contextmanager
def _many_files() -> Iterator[None]:
    """Let this process, and those it starts, open as many files as the crowd takes."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@contextmanager
def _process(*command: str, **environ: str) -> Iterator[None]:
    process = subprocess.Popen(  # noqa: S603 - this interpreter runs our own code
        [sys.executable, *command],
        env={"PATH": ""} | environ,
        cwd=Path(__file__).parents[1],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _serve(folder: Path) -> Iterator[Callers]:
    callers = Callers(own_port())
    stores = {
        "LEASEHOLD_STORE": f"sqlite:///{folder / 'engine.db'}",
        "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
        "LEASEHOLD_CATALOG": "bench.durable_steps",
    }
    with _process("-m", "leasehold", "serve", "--port", str(callers.port), **stores):
        _wait_for(callers)
        yield callers


@contextmanager
def _bare() -> Iterator[Callers]:
    callers = Callers(own_port())
    with _process("-c", _BARE, str(callers.port)):
        _wait_for(callers)
        yield callers


def _wait_for(callers: Callers) -> None:
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            callers.check_ready()
        except (OSError, AssertionError):  # or it answers /health, and nothing else yet
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def measure(rounds: int, asked: int) -> list[Figure]:
    """Return the figures: the longest answer of so many, and the paces beside waitress itself."""
    longest, crowded, paces = [], [], []
    with (
        _many_files(),
        TemporaryDirectory() as name,
        _serve(Path(name)) as served,
        _bare() as bare,
    ):
        for number in range(_RUNS):
            served.start(number)
        for _ in range(rounds):
            alone, pace = _longest(served, asked), served.pace(asked)
            took, crowded_pace = _longest_beside_a_crowd(served, asked)
            longest.append((took, alone))
            crowded.append((crowded_pace, pace))
            paces.append((served.pace(asked), bare.pace(asked)))
    beside = f"beside {NON_READERS} non-readers and {SILENT:,} silent ones"
    return [
        figure(f"longest answer {beside}", "s", longest, value_at_most=1),
        figure(f"requests {beside}", "requests/s", crowded),
        figure("requests of /health, against waitress alone", "requests/s", paces),
    ]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--asked", type=int, default=500)
    given = parser.parse_args()
    report("slow_callers", measure(given.rounds, given.asked))


if __name__ == "__main__":
    main()
