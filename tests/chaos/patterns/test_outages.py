"""Every pattern while what it depends on is away, slow, full, deaf or refuses, and then comes back.

No worker is killed here: each has to bear it, and each pattern keeps its word as in the storm.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.patterns.processes import DEAF, REFUSES, SLOW_S, Place
from tests.chaos.patterns.scenario import Storm, opened_place, survive_at
from tests.chaos.patterns.test_patterns import SEED, check
from tests.worlds.emulators import need_firestore, own_firestore

pytestmark = pytest.mark.nightly

#: For far longer than a lease, which is three seconds here.
AWAY_S = 20.0
#: A file system with room for a store of this test, and not for much more.
SIZE = "32m"


def storm_of(kind: str) -> Storm:
    return Storm(kind, rounds=4, kills=0, seed=SEED, items=9, calls=4)


def told(place: Place, **environ: str) -> Place:
    """Return the place, whose workers have more to bear."""
    return replace(place, environ={**place.environ, **environ})


def test_an_emulator_that_stands_still_loses_nothing(tmp_path: Path) -> None:
    """No connection breaks: calls hang, and what was sent is carried out when it goes on."""
    need_firestore()
    storm = storm_of("firestore")
    with own_firestore() as (host, pid):
        place = told(opened_place("firestore", tmp_path), FIRESTORE_EMULATOR_HOST=host)

        def freeze() -> None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(AWAY_S)
            os.kill(pid, signal.SIGCONT)

        check(survive_at(place, storm, cut=freeze), storm)


def test_a_file_that_another_process_has_locked_loses_nothing(tmp_path: Path) -> None:
    storm, place = storm_of("sqlite"), opened_place("sqlite", tmp_path)

    def lock() -> None:
        with closing(sqlite3.connect(tmp_path / "runs.db", timeout=30)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(AWAY_S)

    check(survive_at(place, storm, cut=lock), storm)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    storm = storm_of("sqlite")
    with small_disk(tmp_path / "disk") as disk:
        place = opened_place("sqlite", tmp_path)
        place = told(place, LEASEHOLD_STORE=f"sqlite:///{disk}/runs.db")

        check(survive_at(place, storm, cut=filled(disk)), storm)


def filled(disk: Path) -> Callable[[], None]:
    def fill() -> None:
        end = time.monotonic() + AWAY_S
        with (disk / "filler").open("wb", buffering=0) as filler:
            while time.monotonic() < end:
                try:
                    filler.write(b"x" * 4096)
                except OSError:
                    time.sleep(0.05)
        (disk / "filler").unlink()

    return fill


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Lend a file system of its own, or skip the test where none may be mounted."""
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root alone")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607 - of the PATH


@pytest.mark.parametrize("kind", ["sqlite", "firestore"])
@pytest.mark.parametrize(
    "environ",
    [{SLOW_S: "0.6"}, {DEAF: "0.15"}, {REFUSES: "0.6"}],
    ids=["slow store", "lost answers", "refused tasks"],
)
def test_what_its_workers_have_to_bear_loses_nothing(
    tmp_path: Path, kind: str, environ: dict[str, str]
) -> None:
    if kind == "firestore":
        need_firestore()
    storm = storm_of(kind)

    check(survive_at(told(opened_place(kind, tmp_path), **environ), storm, cut=int), storm)
