"""A file gets shorter once what was in it is deleted, and others use it meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.stored import Ref
from tests.worlds.stores import put

RUNS = [Ref("runs", f"r-{number}") for number in range(200)]


def filled(path: Path) -> SqliteDocuments:
    """A store of 200 documents of 8 KiB, all but the last of which were deleted."""
    documents = SqliteDocuments(path, SystemClock())
    for ref in RUNS:
        documents.transact(ref, put({"text": "x" * 8192}))
    for ref in RUNS[:-1]:
        documents.delete(ref)
    return documents


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def documents(path: Path) -> Iterator[SqliteDocuments]:
    documents = filled(path)
    yield documents
    documents.close()


def test_the_file_gets_shorter(path: Path, documents: SqliteDocuments) -> None:
    before = path.stat().st_size

    documents.give_back_space()

    assert before > 1_000_000
    SqliteDocuments(empty := path.with_name("empty.db"), SystemClock()).close()
    assert path.stat().st_size < empty.stat().st_size + 20_000
    assert documents.get(RUNS[-1]) is not None


def test_pages_are_given_back_a_part_at_a_time(
    documents: SqliteDocuments, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two parts others write: what they wrote is there, and the file is sound."""
    monkeypatch.setattr("leasehold.adapters.sqlite.schema._MAX_PAGES_MOVED", 10)
    other = SqliteDocuments(path, SystemClock())
    parts = 0
    run = documents._commits.run  # noqa: SLF001 - what happens between two transactions

    def run_and_write(work: Any, **options: Any) -> Any:
        nonlocal parts
        parts += 1
        other.transact(Ref("runs", f"new-{parts}"), put({"text": "y" * 8192}))
        return run(work, **options)

    monkeypatch.setattr(documents._commits, "run", run_and_write)  # noqa: SLF001 - as above
    documents.give_back_space()
    other.close()

    assert parts > 10
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        count = connection.execute("SELECT count(*) FROM runs").fetchone()
    connection.close()
    assert count == (1 + parts,)


def test_a_file_of_a_version_before_keeps_its_pages_for_what_comes(path: Path) -> None:
    """To give them back it would have to be written anew, and be locked meanwhile."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("CREATE TABLE t (x)")
        connection.execute("DROP TABLE t")
    connection.close()
    documents = filled(path)

    documents.give_back_space()

    with sqlite3.connect(path) as connection:
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    connection.close()
    documents.close()
    assert free > 300
