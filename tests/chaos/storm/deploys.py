"""Deploys in a storm: wrong ones, put right again, server by server, while servers are killed.

A scenario for the tests, where it is small, and for the benchmarks, where it is not.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from leasehold import Client, Manifest
from leasehold.domain.trace import TraceType
from tests.chaos.storm.shop.calls import LEDGER, SERVER
from tests.worlds.emulators import environment, firestore_host
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

GOOD: Final = "good"
SHOP: Final = Path(__file__).parent / "shop"
_CATALOG: Final = "shop.catalog"
_START_S: Final = 120.0
_STOP_S: Final = 60.0


def _forget_a_package(shop: Path) -> None:
    """Have a step import a package that is missing."""
    _edit(shop / "refine.py", "from leasehold import", "import paidtools\nfrom leasehold import")


def _change_a_model(shop: Path) -> None:
    """Have the second step want of the first what that never gave before."""
    _edit(shop / "models.py", "    pages: list[str]", "    pages: list[str]\n    source: str")
    _edit(shop / "gather.py", "pages=pages.results)", 'pages=pages.results, source="web")')


def _rename_a_step(shop: Path) -> None:
    """Call the second step by another name."""
    catalog = shop / "catalog.py"
    _edit(catalog, '("gather", "refine", "report")', '("gather", "polish", "report")')
    (shop / "refine.py").rename(shop / "polish.py")
    _edit(shop / "polish.py", "def refine(", "def polish(")


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, f"{file.name} is no longer what this deploy spoils"
    file.write_text(text.replace(old, new))


#: What people deploy by mistake.
MISTAKES: Final[Mapping[str, Callable[[Path], None]]] = {
    "forgotten package": _forget_a_package,
    "changed model": _change_a_model,
    "renamed step": _rename_a_step,
}


@dataclass(frozen=True, slots=True)
class Storm:
    """A storm.

    Args:
        kind: of the store, `sqlite` or `firestore`.
        runs: how many are started, some before each wrong deploy.
        rounds: how many wrong deploys there are, each put right again.
        servers: how many there are at once.
        pages: how many items the first step has, and calls the second one.
        call_seconds: how long each takes.
        seed: who is killed, and when.
        patience_s: how long the runs may take to end after the last deploy.
    """

    kind: str
    runs: int
    rounds: int
    servers: int = 3
    pages: int = 6
    call_seconds: float = 0.5
    seed: int = 1
    patience_s: float = 120.0


@dataclass(slots=True)
class Aftermath:
    """The result of a storm.

    Args:
        runs: each of them, as it ended.
        paid: how often each call of a run was paid for.
        unexplained: the calls that were paid again though no payer was killed.
        blocked: how often a run was blocked, by the code.
        deploys: how many times a server was replaced by one with another release.
        kills: how many servers were killed.
    """

    runs: list[Manifest] = field(default_factory=list)
    paid: Counter[tuple[str, str]] = field(default_factory=Counter)
    unexplained: list[tuple[str, str]] = field(default_factory=list)
    blocked: Counter[str] = field(default_factory=Counter)
    deploys: int = 0
    kills: int = 0

    @property
    def given_up(self) -> list[str]:
        """The runs that were given up, and why."""
        return [f"{run.run_id}: {run.dead_letter_detail}" for run in self.runs if run.dead_lettered]

    @property
    def failures(self) -> int:
        """How many attempts counted as failed; none of the handlers ever raises."""
        return sum(step.attempts.failed for run in self.runs for step in run.steps.values())

    @property
    def paid_again(self) -> int:
        """How many calls were paid for more than once."""
        return sum(count - 1 for count in self.paid.values())


class Fleet:
    """Servers on one store, each with a release of the shop.

    Args:
        folder: where releases, logs and the ledger lie.
        environ: the settings of each server.
        size: how many there are.
        after: what is counted of them.
    """

    def __init__(
        self, folder: Path, environ: Mapping[str, str], size: int, after: Aftermath
    ) -> None:
        self._folder, self._environ, self._after = folder, environ, after
        self._begun = 0
        self._servers: list[tuple[subprocess.Popen[bytes], str, str]] = []
        self.killed: set[str] = set()  # the names of servers
        self._servers += [self._begin(GOOD) for _ in range(size)]

    def roll_out(self, release: str, chance: random.Random) -> Iterator[None]:
        """Replace one server after the other; some are killed, the others drain."""
        for place in range(len(self._servers)):
            yield
            self._replace(place, release, chance.choice((signal.SIGTERM, signal.SIGKILL)))
            self._after.deploys += 1

    def kill_one(self, chance: random.Random) -> None:
        """Kill a server; it comes again with the release that it had."""
        place = chance.randrange(len(self._servers))
        self._replace(place, self._servers[place][1], signal.SIGKILL)

    def close(self) -> None:
        """End all servers."""
        for process, _, _ in self._servers:
            process.kill()
            process.wait(_STOP_S)

    def _replace(self, place: int, release: str, by: signal.Signals) -> None:
        process, _, name = self._servers[place]
        if by is signal.SIGKILL:
            self.killed.add(name)
            self._after.kills += 1
        process.send_signal(by)
        process.wait(_STOP_S)
        self._servers[place] = self._begin(release)

    def _begin(self, release: str) -> tuple[subprocess.Popen[bytes], str, str]:
        """Start a server with a release, and wait until it is ready."""
        self._begun += 1
        name = f"server-{self._begun}"
        log = self._folder / f"{name}.log"
        root = self._folder / release
        words = ["serve", "--port", str(own_port()), "--allow-broken"]
        with log.open("wb") as told:
            process = subprocess.Popen(
                [sys.executable, "-m", "leasehold", *words],
                env={**self._environ, "PYTHONPATH": str(root), SERVER: name},
                cwd=root,
                stdout=told,
                stderr=told,
            )
        is_ready = lambda: b"ready http" in log.read_bytes() or process.poll() is not None  # noqa: E731
        until(is_ready, _START_S)
        assert process.poll() is None, log.read_text()
        return process, release, name


def survive_deploys(storm: Storm, folder: Path, say: Callable[[str], object] = str) -> Aftermath:
    """Have runs go through wrong deploys and kills; return what came of them, once all ended.

    Args:
        storm: the storm.
        folder: an empty one.
        say: given a line on each round.
    """
    with store_of(storm.kind, folder) as environ:
        for release in (GOOD, *MISTAKES):
            write_release(folder / release, release)
        after, chance = Aftermath(), random.Random(storm.seed)  # noqa: S311 - a storm that can be repeated
        settings = {**environ, LEDGER: str(folder / "ledger")}
        with shop_client(settings) as client:
            fleet = Fleet(folder, settings, storm.servers, after)
            try:
                _weather(storm, fleet, client, after, chance, say)
                after.runs = ended(client, storm.runs, storm.patience_s)
                after.blocked = blocks_of(client, after.runs)
            finally:
                fleet.close()
        count_calls(folder / "ledger", fleet.killed, after)
    return after


@contextmanager
def shop_client(settings: Mapping[str, str]) -> Iterator[Client]:
    """Give a client that knows the shop, and forget it then: other tests have a shop of theirs."""
    sys.path.insert(0, str(SHOP.parent))
    try:
        with Client(environ=settings) as client:
            yield client
    finally:
        sys.path.remove(str(SHOP.parent))
        for name in [name for name in sys.modules if name.partition(".")[0] == SHOP.name]:
            del sys.modules[name]


@contextmanager
def store_of(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """Give the settings of a store of this kind, whose waits are short."""
    store = {"LEASEHOLD_STORE": f"sqlite:///{folder / 'leasehold.db'}"}
    if kind == "firestore":
        project = f"deploys-{secrets.token_hex(4)}"
        store = {
            "LEASEHOLD_STORE": f"firestore://{project}/(default)",
            "FIRESTORE_EMULATOR_HOST": firestore_host(),
        }
    kept = {name: value for name, value in os.environ.items() if "LEASEHOLD" not in name}
    settings = {
        **kept,
        **store,
        "LEASEHOLD_ARTIFACTS": f"file://{folder / 'artifacts'}",
        "LEASEHOLD_ARTIFACTS_SHARED": "yes",  # by servers of one machine
        "LEASEHOLD_CATALOG": _CATALOG,
        "PIPELINE_DISPATCH_GRACE_S": "5",
        "PIPELINE_LEASE_TTL_S": "15",
        "PIPELINE_HEARTBEAT_S": "5",
    }
    with environment(**store):
        yield settings


def write_release(root: Path, release: str) -> None:
    """Write a release of the shop into a folder."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SHOP, root / "shop", ignore=ignored)
    if release != GOOD:
        MISTAKES[release](root / "shop")


def _weather(
    storm: Storm,
    fleet: Fleet,
    client: Client,
    after: Aftermath,
    chance: random.Random,
    say: Callable[[str], object],
) -> None:
    """Deploy each mistake in turn, and put it right, while runs begin and servers are killed."""
    mistakes, pause = list(MISTAKES), threading.Event()
    orders, places = iter(range(storm.runs)), 2 * storm.servers * storm.rounds
    for number in range(storm.rounds):
        mistake = mistakes[number % len(mistakes)]
        for release in (mistake, GOOD):
            for _ in fleet.roll_out(release, chance):
                for order in islice(orders, -(-storm.runs // places)):
                    given = {"pages": storm.pages, "call_seconds": storm.call_seconds}
                    client.start("order", given, idempotency_key=f"order-{order}")
                pause.wait(chance.uniform(0.0, 2.0))
            if chance.random() < 0.5:
                fleet.kill_one(chance)
            pause.wait(chance.uniform(1.0, 4.0))
        blocked = Counter(run.block_code for run in client.runs(status="BLOCKED"))
        say(f"round {number + 1} of {storm.rounds}: {mistake}; still blocked: {dict(blocked)}")


def ended(client: Client, runs: int, patience_s: float) -> list[Manifest]:
    """Wait until all runs are over; return them, those that are not over by then too."""
    live = {run.run_id for run in client.runs()}
    assert len(live) == runs
    ends: list[Manifest] = []
    pause, end = threading.Event(), time.monotonic() + patience_s
    while live:
        found = [client.get(run_id) for run_id in sorted(live)]
        is_late = time.monotonic() > end
        ends += [run for run in found if run.is_terminal or is_late]
        live -= {run.run_id for run in ends}
        pause.wait(0.5)
    return ends


def blocks_of(client: Client, runs: Sequence[Manifest]) -> Counter[str]:
    """Count how often runs were blocked, as their traces have it."""
    traced = [event for run in runs for event in client.trace(run.run_id)]
    wanted = {TraceType.STEP_BLOCKED, TraceType.STEP_UNKNOWN}
    return Counter(str(event.reason) for event in traced if event.type in wanted)


def count_calls(ledger: Path, killed: set[str], after: Aftermath) -> None:
    """Count what was paid; a call is paid again with reason where who had paid was killed."""
    payers: dict[tuple[str, str], list[str]] = {}
    for line in sorted(ledger.read_text().splitlines()):
        _, server, run_id, call = line.split()
        payers.setdefault((run_id, call), []).append(server)
    after.paid = Counter({call: len(servers) for call, servers in payers.items()})
    after.unexplained = [
        call for call, servers in payers.items() if not _explained(servers, killed)
    ]


def _explained(servers: Sequence[str], killed: set[str]) -> bool:
    return all(first in killed for first, _ in pairwise(servers))
