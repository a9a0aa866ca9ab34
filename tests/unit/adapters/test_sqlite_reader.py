"""A store's file is read whole, with its log, and nothing beside it is made or changed by that."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.adapters.sqlite.reader import SqliteReader
from leasehold.domain.stored import Ref
from leasehold.ports.documents import Query
from tests.unit.adapters.processes import put

NAME = "runs.db"
BESIDE = ("", "-wal", "-shm")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[SqliteDocuments, Path]]:
    """Lend a store that another process has open, and that has a run in its log alone."""
    folder = tmp_path / "live"
    with closing(SqliteDocuments(folder / NAME, SystemClock())) as store:
        store.transact(Ref("runs", "r-1"), put({"count": 1}))
        yield store, folder


def copied(folder: Path, to: Path, *ends: str) -> Path:
    """Copy files of a store, as a machine that went down, or a backup, leaves them behind."""
    to.mkdir()
    for end in ends:
        shutil.copy(folder / f"{NAME}{end}", to)
    return to


def runs_in(folder: Path) -> list[str]:
    reader = SqliteReader(folder / NAME, SystemClock())
    assert reader.damages(60) == ([], True)
    return sorted(found.ref.id for found in reader.query(Query("runs")))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("ends", [("", "-wal"), BESIDE], ids=["backup", "killed"])
def test_a_file_that_is_not_open_is_read_with_its_log_and_not_changed(
    live: tuple[SqliteDocuments, Path], tmp_path: Path, ends: tuple[str, ...]
) -> None:
    """A `-shm` that root had made could not be written by whom the store belongs to."""
    folder = copied(live[1], tmp_path / "left", *ends)
    before = content(folder)

    assert runs_in(folder) == ["r-1"]
    assert content(folder) == before


@pytest.mark.parametrize("log", [b"", b"cut off", bytes(5000)], ids=["empty", "cut off", "zeros"])
def test_a_log_with_nothing_in_it_is_left_where_it_is(
    live: tuple[SqliteDocuments, Path], tmp_path: Path, log: bytes
) -> None:
    """Else that of a writer who has begun one meanwhile would be deleted under it."""
    store, folder = live
    store.close()
    left = copied(folder, tmp_path / "left", "")
    (left / f"{NAME}-wal").write_bytes(log)
    before = content(left)

    assert runs_in(left) == ["r-1"]
    assert content(left) == before


def test_the_log_is_found_beside_the_file_that_a_link_leads_to(
    live: tuple[SqliteDocuments, Path], tmp_path: Path
) -> None:
    link = tmp_path / NAME
    link.symlink_to(live[1] / NAME)

    assert runs_in(tmp_path) == ["r-1"]


def test_what_is_opened_written_and_closed_while_it_is_read_is_read_anew(
    live: tuple[SqliteDocuments, Path],
) -> None:
    """Before and after the look no process has it open, and half of it may be of either time."""
    store, folder = live
    store.close()

    class BusyClock(SystemClock):
        is_busy = False

        def now(self) -> datetime:
            if self.is_busy:
                self.is_busy = False
                with closing(SqliteDocuments(folder / NAME, SystemClock())) as other:
                    for number in range(2, 20):
                        other.transact(Ref("runs", f"r-{number}"), put({"count": number}))
            return super().now()

    clock = BusyClock()
    reader = SqliteReader(folder / NAME, clock)
    clock.is_busy = True

    assert len(reader.query(Query("runs"))) == 19
    assert sorted(content(folder)) == [NAME]


def test_what_is_written_meanwhile_is_seen(live: tuple[SqliteDocuments, Path]) -> None:
    store, folder = live
    assert runs_in(folder) == ["r-1"]

    store.transact(Ref("runs", "r-2"), put({"count": 2}))

    assert runs_in(folder) == ["r-1", "r-2"]
    assert sorted(content(folder)) == [f"{NAME}{end}" for end in sorted(BESIDE)]


def test_a_store_that_is_closed_has_nothing_beside_it_after_a_look(
    live: tuple[SqliteDocuments, Path],
) -> None:
    store, folder = live
    store.close()

    assert runs_in(folder) == ["r-1"]
    assert sorted(content(folder)) == [NAME]


def test_a_log_that_belongs_to_nothing_is_left_where_it_is(
    live: tuple[SqliteDocuments, Path], tmp_path: Path
) -> None:
    """SQLite deletes one without a valid page when it closes, though it only reads."""
    store, folder = live
    store.close()
    left = copied(folder, tmp_path / "left", "")
    (left / f"{NAME}-wal").write_bytes(b"of another program " * 300)
    before = content(left)

    assert runs_in(left) == ["r-1"]
    assert content(left) == before
