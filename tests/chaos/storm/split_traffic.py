"""Functions whose traffic is split between two releases, rolled forward and back, with kills.

The real functions under the real framework, with the double of Cloud Tasks. Between the two stands
what stands there in the cloud: a front that sends each delivery to one revision or the other.
"""

from __future__ import annotations

import itertools
import operator
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from leasehold.devserver.cloud_tasks import CloudTasksDouble, QueueSettings, RetryConfig
from leasehold.devserver.cloud_tasks.task import UNLIMITED
from tests.chaos.storm.deploys import (
    GOOD,
    Aftermath,
    blocks_of,
    count_calls,
    ended,
    shop_client,
    store_of,
    write_release,
)
from tests.chaos.storm.shop.calls import LEDGER, SERVER
from tests.worlds.ports import own_port
from tests.worlds.serving import while_serving
from tests.worlds.waiting import until

_ROOT: Final = Path(__file__).parents[3]
_START_S: Final = 120.0
_STOP_S: Final = 60.0
_ANSWER_S: Final = 900.0
_SWEEP_EVERY_S: Final = 1.0
#: As the queues of an installation, but what is refused comes again sooner.
_SOON: Final = RetryConfig(
    max_attempts=UNLIMITED,
    min_backoff=timedelta(milliseconds=200),
    max_backoff=timedelta(seconds=1),
)
#: How much of the traffic the new release has, as it is rolled out and back.
_SHARES: Final = (0.5, 1.0, 0.5, 0.0)
#: How often an instance is killed after a change.
_KILLS: Final = 0.7
_START: Final = """
import sys
from leasehold import Client
with Client() as client:
    for key in sys.argv[3:]:
        given = {"pages": int(sys.argv[1]), "call_seconds": float(sys.argv[2])}
        client.start("order", given, idempotency_key=key)
"""


@dataclass(frozen=True, slots=True)
class Split:
    """How traffic is split.

    Args:
        mistake: what the new release has other than the old one, of `deploys.MISTAKES`.
        runs: how many are started, by both releases.
        rounds: how often the new release is rolled out and back.
        last: how much of the traffic it has in the end, so that every run can complete.
        pages: how many items the first step has, and calls the second one.
        call_seconds: how long each takes.
        seed: where each delivery goes, who is killed, and when.
        patience_s: how long the runs may take to end after the last change.
    """

    mistake: str
    runs: int
    rounds: int
    last: float
    pages: int = 3
    call_seconds: float = 0.3
    seed: int = 1
    patience_s: float = 180.0


class _Instance:
    """An instance of a function: the framework's server with its worker, killed as one."""

    def __init__(self, function: str, folder: Path, environ: Mapping[str, str], name: str) -> None:
        self.name, self._port = name, own_port()
        self.url = f"http://127.0.0.1:{self._port}/"
        self.log = folder / f"{name}.log"
        source = _ROOT / "shared/leasehold/functions" / f"{function}.py"
        words = ["--target", function, "--source", str(source), "--port", str(self._port)]
        with self.log.open("wb") as told:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "functions_framework", *words, "--host", "127.0.0.1"],
                env={**environ, SERVER: name, "WORKERS": "1", "THREADS": "8"},
                cwd=environ["PYTHONPATH"],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=told,
                start_new_session=True,
            )

    def wait_until_ready(self) -> None:
        """Wait until it listens."""
        until(lambda: self._listens() or self._process.poll() is not None, _START_S)
        assert self._process.poll() is None, self.log.read_text()

    def end(self, by: signal.Signals) -> None:
        """End it, as the platform does (SIGTERM), or with all of its processes (SIGKILL)."""
        if by is signal.SIGKILL:
            os.killpg(self._process.pid, by)
        else:
            self._process.send_signal(by)
        self._process.wait(_STOP_S)

    def _listens(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self._port)) == 0


class _Traffic:
    """Two revisions behind one front, each with its share of the deliveries and sweeps.

    Args:
        folder: where releases and logs lie.
        environ: the settings of the functions.
        new: the release that is rolled out.
        after: where ends are counted.
        seed: who gets which request.

    Attributes:
        killed: the names of the instances that were killed.
    """

    def __init__(
        self, folder: Path, environ: Mapping[str, str], new: str, after: Aftermath, seed: int
    ) -> None:
        self._folder, self._environ, self._after = folder, environ, after
        self._chance = random.Random(seed)  # noqa: S311 - a storm that can be repeated
        self._picking = threading.Lock()
        self._shares = {GOOD: 1.0, new: 0.0}
        self._instances: dict[tuple[str, str], _Instance] = {}
        self._begun = 0
        self.killed: set[str] = set()

    @property
    def releases(self) -> list[str]:
        """Those that have traffic."""
        return [release for release, share in self._shares.items() if share]

    def split(self, share: float, chance: random.Random) -> None:
        """Give the new release this share; what has no traffic any more ends, some by a kill."""
        old, new = self._shares
        shares = {old: 1.0 - share, new: share}
        self._begin([release for release in shares if shares[release]])
        self._shares = shares
        idle = [release for release in shares if not shares[release]]
        self.end(idle, chance.choice((signal.SIGTERM, signal.SIGKILL)))
        self._after.deploys += 1

    def replace_all(self) -> None:
        """Deploy what has traffic once more: all instances are new ones."""
        self.end(self.releases, signal.SIGTERM)
        self._begin(self.releases)
        self._after.deploys += 1

    def kill_one(self, chance: random.Random) -> None:
        """Kill the instances of a release that has traffic; they come again."""
        release = chance.choice(self.releases)
        self.end([release], signal.SIGKILL)
        self._begin([release])

    def end(self, releases: Sequence[str], by: signal.Signals) -> None:
        """End the instances of releases."""
        for place in [place for place in self._instances if place[0] in releases]:
            instance = self._instances.pop(place)
            if by is signal.SIGKILL:
                self.killed.add(instance.name)
                self._after.kills += 1
            instance.end(by)

    def answer(self, function: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Have one revision answer; 500 where its instance is not there, or dies."""
        with self._picking:
            (release,) = self._chance.choices(list(self._shares), list(self._shares.values()))
        instance = self._instances.get((release, function))
        if instance is None:
            return 500
        request = urllib.request.Request(instance.url, body, dict(headers), method="POST")  # noqa: S310 - our own server
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except (OSError, HTTPException):
            return 500

    def _begin(self, releases: Sequence[str]) -> None:
        """Start what is not there, all at once, and wait until it is ready."""
        places = set(itertools.product(releases, ("execute_step", "sweep_dead_letters")))
        begun = sorted(places - self._instances.keys())
        for release, function in begun:
            self._begun += 1
            environ = {**self._environ, "PYTHONPATH": str(self._folder / release)}
            name = f"{function}-{self._begun}"
            self._instances[release, function] = _Instance(function, self._folder, environ, name)
        for place in begun:
            self._instances[place].wait_until_ready()


class _Front(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, traffic: _Traffic) -> None:
        super().__init__(("127.0.0.1", port), _Delivery)
        self.traffic = traffic


class _Delivery(BaseHTTPRequestHandler):
    server: _Front

    def do_POST(self) -> None:
        """Have a revision answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        names = [name for name in self.headers if name.lower().startswith(("x-", "content-type"))]
        headers = {name: self.headers[name] for name in names}
        self.send_response(self.server.traffic.answer("execute_step", body, headers))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def survive_split(split: Split, folder: Path) -> Aftermath:
    """Have runs of both releases go through the split and kills; return what came of them.

    Args:
        split: how traffic is split.
        folder: an empty one.
    """
    after, port = Aftermath(), own_port()
    with store_of("firestore", folder) as environ, _queue() as tasks:
        settings = {
            **environ,
            "LEASEHOLD_TASKS": "cloud-tasks://local/local",
            "LEASEHOLD_FUNCTION_URL": f"http://127.0.0.1:{port}/",
            "CLOUD_TASKS_EMULATOR_URL": tasks,
            "PIPELINE_LEASE_TTL_S": "8",
            "PIPELINE_HEARTBEAT_S": "2",
            LEDGER: str(folder / "ledger"),
        }
        for release in (GOOD, split.mistake):
            write_release(folder / release, release)
        traffic = _Traffic(folder, settings, split.mistake, after, split.seed)
        with while_serving(_Front(port, traffic)), _swept(traffic), shop_client(settings) as client:
            _roll(split, traffic, folder, settings)
            after.runs = ended(client, split.runs, split.patience_s)
            after.blocked = blocks_of(client, after.runs)
    count_calls(folder / "ledger", traffic.killed, after)
    return after


def _roll(split: Split, traffic: _Traffic, folder: Path, settings: Mapping[str, str]) -> None:
    """Roll the new release out and back, while both start runs and instances are killed."""
    chance, pause = random.Random(split.seed), threading.Event()  # noqa: S311 - as above
    shares = _SHARES * split.rounds
    keys = iter([f"order-{number}" for number in range(split.runs)])
    for number, share in enumerate(shares):
        traffic.split(share, chance)
        left = len(shares) - number
        due = list(itertools.islice(keys, -(-operator.length_hint(keys) // left)))
        for place, release in enumerate(traffic.releases):
            words = [str(split.pages), str(split.call_seconds)]
            words += due[place :: len(traffic.releases)]
            environ = {**settings, "PYTHONPATH": str(folder / release)}
            subprocess.run([sys.executable, "-c", _START, *words], env=environ, check=True)
        pause.wait(chance.uniform(0.0, 2.0))
        if chance.random() < _KILLS:
            traffic.kill_one(chance)
    traffic.split(split.last, chance)
    traffic.replace_all()


@contextmanager
def _queue() -> Iterator[str]:
    double = CloudTasksDouble(QueueSettings(retry=_SOON))
    try:
        yield double.start()
    finally:
        double.stop()


@contextmanager
def _swept(traffic: _Traffic) -> Iterator[None]:
    """Have the sweep of one revision or the other called, as the Scheduler does."""
    over = threading.Event()

    def tick() -> None:
        while not over.wait(_SWEEP_EVERY_S):
            traffic.answer("sweep_dead_letters", b"{}", {"Content-Type": "application/json"})

    sweeper = threading.Thread(target=tick)
    sweeper.start()
    try:
        yield
    finally:
        over.set()
        sweeper.join()
        traffic.end(traffic.releases, signal.SIGKILL)
