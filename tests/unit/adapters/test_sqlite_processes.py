"""Many processes on one SQLite file, and processes that end at a bad moment."""

import multiprocessing
import sqlite3
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.stored import Ref
from tests.unit.adapters.processes import (
    create_what_is_missing,
    fill_the_disk,
    open_fresh_files,
    write_and_acknowledge,
)

SPAWN = multiprocessing.get_context("spawn")


def all_from(*pipes: Connection) -> list[Any]:
    """Return all that was sent until the other end was closed."""
    received: list[Any] = []
    for pipe in pipes:
        with pipe:
            try:
                while True:
                    received.append(pipe.recv())
            except EOFError:
                continue
    return received


def test_processes_can_open_a_fresh_file_at_the_same_moment(tmp_path: Path) -> None:
    """Each makes it WAL: SQLite tells all but one "locked" there, and waits for nothing."""
    barrier = SPAWN.Barrier(4)
    processes = [
        SPAWN.Process(target=open_fresh_files, args=(tmp_path, barrier, 12)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    for number in range(12):
        file = sqlite3.connect(tmp_path / f"{number}.db")
        assert file.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert file.execute("SELECT count(*) FROM runs").fetchone() == (4,)
        file.close()


def test_of_processes_that_create_the_same_document_one_succeeds(
    documents: SqliteDocuments, path: Path
) -> None:
    """A late process leaves nothing else of its commit behind."""
    pipes = [SPAWN.Pipe(duplex=False) for _ in range(3)]
    processes = [
        SPAWN.Process(target=create_what_is_missing, args=(path, sender)) for _, sender in pipes
    ]
    for process, (_, sender) in zip(processes, pipes, strict=True):
        process.start()
        sender.close()

    created = all_from(*(receiver for receiver, _ in pipes))

    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(created) == sorted(f"r-{number}" for number in range(100))
    assert all(documents.get(Ref("runs", id_)) is not None for id_ in created)
    file = sqlite3.connect(path)
    assert file.execute("SELECT count(*) FROM runs").fetchone() == (200,)
    file.close()


def test_what_was_acknowledged_is_there_after_kill_9(path: Path) -> None:
    """Each document with the event of its commit, or neither; and the file is sound."""
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=write_and_acknowledge, args=(path, sender))
    process.start()
    sender.close()
    acknowledged = [receiver.recv() for _ in range(200)]

    process.kill()

    acknowledged += all_from(receiver)
    process.join()
    assert process.exitcode == -9
    documents = SqliteDocuments(path, SystemClock())
    missing = [id_ for id_ in acknowledged if documents.get(Ref("runs", id_)) is None]
    documents.close()
    file = sqlite3.connect(path)
    runs = {f"runs/{id_}" for (id_,) in file.execute("SELECT id FROM runs")}
    traced = {parent for (parent,) in file.execute("SELECT parent FROM trace")}
    check = file.execute("PRAGMA integrity_check").fetchone()
    file.close()
    assert missing == []
    assert runs == traced
    assert check == ("ok",)


def test_a_full_disk_loses_nothing_and_is_got_over(path: Path) -> None:
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=fill_the_disk, args=(path, sender))
    process.start()
    sender.close()

    retryable, stored, refused, may_continue = all_from(receiver)

    process.join()
    assert process.exitcode == 0
    assert retryable
    assert stored
    assert all(stored)
    assert refused is None
    assert may_continue
