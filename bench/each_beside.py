"""Lists of no-op items and their joins, beside other engines on the same machine, turn by turn.

`make bench-each` runs 100 lists of 100 items, all started at once. Each engine has the defaults
with which it is put to work, and does all on this machine:

- Leasehold: `Each` on SQLite, four workers, as `leasehold serve` has them. A commit is on the disk
  before the next step; after SIGKILL each item that was at work is done again, and none is lost.
- DBOS: a queue whose items are workflows, on Postgres. As above; what a killed process had is
  recovered when that starts again.
- Celery: a chord, a worker process a core, Redis with an append-only file that is synced once a
  second. A message is acknowledged before its task runs: items that a killed worker had are lost,
  and the join then never comes.
- BullMQ: a flow, 100 jobs at once in one process of Node. Redis as above; a job of a killed worker
  stalls for 30 s and is done again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from bench.measuring import Figure, figure, report

_ROOT: Final = Path(__file__).parent.parent
_MODULES: Final = _ROOT / ".venv/bench/bullmq"
_PATIENCE_S: Final = 900
_POSTGRES: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class Peer(NamedTuple):
    """An engine.

    Args:
        name: for people.
        command: what runs the lists.
        service: what it needs beside that: `redis`, `postgres` or nothing.
        is_python: whether its items run in Python.
    """

    name: str
    command: tuple[str, ...]
    service: str = ""
    is_python: bool = True


def _python(environment: str, module: str) -> tuple[str, ...]:
    return str(_ROOT / environment / "bin/python"), "-m", f"bench.peers.{module}"


OURS: Final = Peer("Leasehold", _python(".venv", "each_leasehold"))
PEERS: Final = (
    Peer("DBOS", _python(".venv/bench/dbos", "each_dbos"), "postgres"),
    Peer("Celery", _python(".venv/bench/celery", "each_celery"), "redis"),
    Peer(
        "BullMQ",
        ("node", str(_ROOT / "bench/peers/each_bullmq.mjs")),
        "redis",
        is_python=False,
    ),
)


class Facts(NamedTuple):
    """What an engine did: items a second, and the seconds from a list's last item to its join."""

    pace: float
    join_s: float
    last_join_s: float


def measured(peer: Peer, runs: int, items: int) -> Facts:
    """Return the facts of one turn of an engine, in a new store."""
    with TemporaryDirectory() as folder, _service(peer.service, Path(folder)) as environ:
        command = [*peer.command, folder, str(runs), str(items)]
        done = subprocess.run(  # noqa: S603 - a module of ours
            command,
            env=os.environ | environ | {"BENCH_MODULES": str(_MODULES)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=True,
        )
    facts: Any = json.loads(done.stdout.splitlines()[-1])
    return Facts(runs * items / facts["took"], median(facts["joins"]), max(facts["joins"]))


@contextmanager
def _service(name: str, folder: Path) -> Iterator[dict[str, str]]:
    """Run what an engine needs, and yield the variable that says where it is."""
    if not name:
        yield {}
        return
    port = _free_port()
    with subprocess.Popen(  # noqa: S603 - of the machine
        _redis(folder, port) if name == "redis" else _postgres(folder, port),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=None if name == "redis" else _postgres_user(),
    ) as service:
        try:
            _wait_for(port)
            if name == "redis":
                yield {"BENCH_REDIS": f"redis://127.0.0.1:{port}/0"}
            else:
                yield {"BENCH_DATABASE": f"postgresql://postgres@127.0.0.1:{port}/bench"}
        finally:
            service.terminate()


def _redis(folder: Path, port: int) -> list[str]:
    options = ("--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes")
    return ["redis-server", "--port", str(port), *options]


def _postgres(folder: Path, port: int) -> list[str]:
    data, programs = folder / "postgres", _POSTGRES[-1]
    data.mkdir()
    if user := _postgres_user():
        folder.chmod(0o711)
        shutil.chown(data, user)
    make = [str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres"]
    subprocess.run(  # noqa: S603 - of the machine
        make, stdout=subprocess.DEVNULL, user=user, cwd="/", check=True
    )
    options = ("-h", "127.0.0.1", "-p", str(port), "-k", str(data))
    return [str(programs / "postgres"), "-D", str(data), *options]


def _postgres_user() -> str | None:
    """Return the user that runs Postgres: it refuses root."""
    return "postgres" if os.geteuid() == 0 else None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(1)  # Postgres listens a moment before it answers
                return
        time.sleep(0.1)
    raise TimeoutError(port)


def measure(rounds: int, runs: int, items: int) -> list[Figure]:
    """Return our figures beside those of each engine that is installed."""
    peers = [peer for peer in PEERS if _is_there(peer)]
    turns = [[measured(peer, runs, items) for peer in (OURS, *peers)] for _ in range(rounds)]
    rows = []
    for number, peer in enumerate(peers, start=1):
        both = [(turn[0], turn[number]) for turn in turns]
        more, less = (1.0, 1.0) if peer.is_python else (None, None)
        beside = f"{runs} lists of {items} items beside {peer.name}"
        rows += [
            figure(f"items: {beside}", "1/s", [(our.pace, its.pace) for our, its in both],
                   at_least=more),
            figure(f"from the last item to the join, median: {beside}", "s",
                   [(our.join_s, its.join_s) for our, its in both], at_most=less),
            figure(f"the same, the longest: {beside}", "s",
                   [(our.last_join_s, its.last_join_s) for our, its in both], at_most=less),
        ]  # fmt: skip
    return rows


def _is_there(peer: Peer) -> bool:
    missing = [
        what
        for what, is_there in (
            (peer.command[0], shutil.which(peer.command[0])),
            ("redis-server", peer.service != "redis" or shutil.which("redis-server")),
            ("bullmq", peer.name != "BullMQ" or (_MODULES / "node_modules/bullmq").exists()),
            ("postgres", peer.service != "postgres" or _POSTGRES),
        )
        if not is_there
    ]
    if missing:
        print(f"without {peer.name}: there is no {missing[0]}")
    return not missing


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--items", type=int, default=100)
    given = parser.parse_args()
    report("each_beside", measure(given.rounds, given.runs, given.items))


if __name__ == "__main__":
    main()
