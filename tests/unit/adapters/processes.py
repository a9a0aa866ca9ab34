"""Further processes on a store, which a test can end at a bad moment."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.folder import FolderArtifacts
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.stored import DecideDocument, Document, Ref, Write
from leasehold.errors import DocumentExistsError, StoreUnavailableError


def put(document: Document, creates: Mapping[Ref, Document] | None = None) -> DecideDocument[None]:
    """Decide that these are to be stored, whatever is there."""
    return lambda _, __: Write(None, document, creates)


def open_fresh_files(folder: Path, barrier: Barrier, rounds: int) -> None:
    """Open one fresh file after the other, each at the same moment as the others do."""
    for number in range(rounds):
        barrier.wait()
        documents = SqliteDocuments(folder / f"{number}.db", SystemClock())
        documents.transact(Ref("runs", f"r-{os.getpid()}"), put({}))
        documents.close()


def create_what_is_missing(path: Path, created: Connection) -> None:
    """Create r-0 to r-99 and send the ids of those that were not there."""
    documents = SqliteDocuments(path, SystemClock())
    for number in range(100):
        ref = Ref("runs", f"r-{number}")
        other = Ref("runs", f"by-{os.getpid()}-{number}")
        try:
            documents.transact(other, put({}, {ref: {}}))
        except DocumentExistsError:
            continue
        created.send(ref.id)
    documents.close()
    created.close()


def write_and_acknowledge(path: Path, acknowledged: Connection) -> None:
    """Write with four threads, forever; send the id of each document that is said to be stored."""
    documents = SqliteDocuments(path, SystemClock())
    sending = threading.Lock()

    def write(thread: int) -> None:
        number = 0
        while True:
            ref = Ref("runs", f"r-{thread}-{number}")
            event = Ref(f"{ref}/trace", "000000")
            documents.transact(ref, put({"text": "x" * 2000}, {event: {}}))
            with sending:
                acknowledged.send(ref.id)
            number += 1

    for thread in range(4):
        threading.Thread(target=write, args=(thread,), daemon=True).start()
    signal.pause()


def close_while_others_write(path: Path) -> None:
    """Close one store after the other while four threads write to it."""
    for number in range(10):
        documents = SqliteDocuments(path.with_name(f"{number}.db"), SystemClock())
        begun = threading.Semaphore(0)
        threads = [threading.Thread(target=_write_on, args=(documents, begun)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            begun.acquire()
        documents.close()
        for thread in threads:
            thread.join()


def _write_on(documents: SqliteDocuments, begun: threading.Semaphore) -> None:
    ref = Ref("runs", f"r-{threading.get_ident()}")
    try:
        while True:
            documents.transact(ref, put({"text": "x" * 20_000}))
            begun.release()
    except StoreUnavailableError:
        return


def fill_the_disk(path: Path, parent: Connection) -> None:
    """Write until files may not grow; then let them grow, and write once more."""
    documents = SqliteDocuments(path, SystemClock())
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    stored = 0
    try:
        while True:
            documents.transact(Ref("runs", f"r-{stored}"), put({"text": "x" * 10_000}))
            stored += 1
    except StoreUnavailableError as error:
        parent.send(error.retryable)
    parent.send([documents.get(Ref("runs", f"r-{number}")) is not None for number in range(stored)])
    parent.send(documents.get(Ref("runs", f"r-{stored}")))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    documents.transact(Ref("runs", "r-last"), put({}))
    parent.send(documents.get(Ref("runs", "r-last")) is not None)
    documents.close()


def stop_in_the_middle_of_put(root: Path, name: str, parent: Connection) -> None:
    """Write an artifact, and stop forever once its data is written but has no name yet."""
    artifacts = FolderArtifacts(root, SystemClock())

    def stop(_: int) -> None:
        parent.send("written")
        signal.pause()

    os.fsync = stop  # type: ignore[assignment] # in this process, which is to be killed
    artifacts.put(name, b"new" * 100_000)
