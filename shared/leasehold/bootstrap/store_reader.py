"""A store to look at: it is neither made nor changed by that."""

from __future__ import annotations

from pathlib import Path

from leasehold.adapters.factory import open_documents
from leasehold.adapters.folder_identity import FolderIdentity
from leasehold.adapters.sqlite.reader import SqliteReader
from leasehold.errors import StoreUnavailableError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Documents

#: What can be asked of it: `query`, and `close`.
StoreReader = Documents | SqliteReader


def store_file(address: str) -> Path | None:
    """Return the file of a store; None: it is in no file."""
    if not address.startswith("sqlite:"):
        return None
    return Path(address.removeprefix("sqlite:///"))


def read_store(address: str, clock: Clock) -> StoreReader:
    """Open a store to look at it.

    Raises:
        StoreUnavailableError, StoreVersionError: it cannot be read.
        MissingExtraError: its client is not installed.
    """
    file = store_file(address)
    return open_documents(address, clock) if file is None else SqliteReader(file, clock)


def folder_problem(folder: Path, store: StoreReader) -> str | None:
    """Return in words why a folder is not the one of the artifacts that a store knows.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    try:
        FolderIdentity(folder, store).find()
    except StoreUnavailableError as error:
        if error.details["store"] != str(folder):
            raise
        return str(error.details["problem"])
    return None


def file_damages(file: Path, clock: Clock, within_s: float) -> tuple[list[str], bool]:
    """Return what is damaged in a store's file, and whether all of it was looked at.

    Raises:
        StoreUnavailableError, StoreVersionError: it cannot be read at all.
    """
    return SqliteReader(file, clock).damages(within_s)
