"""The stores that must keep the ports' promises, and what a further process does with one."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.cloud_storage import CloudStorageArtifacts
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.adapters.folder import FolderArtifacts
from leasehold.adapters.sqlite import SqliteDocuments
from leasehold.domain.stored import DecideDocument, Document, Ref, Write
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.documents import Documents
from tests.worlds.emulators import environment, firestore_host, need_firestore, storage_bucket


@contextlib.contextmanager
def sqlite_documents(folder: Path) -> Iterator[Documents]:
    documents = SqliteDocuments(folder / "runs.db", SystemClock())
    try:
        yield documents
    finally:
        documents.close()


@contextlib.contextmanager
def firestore_documents(folder: Path) -> Iterator[Documents]:
    """Open a project of the folder's own, noted there for other processes; or skip the test."""
    note = folder / "firestore.json"
    if not note.exists():
        need_firestore()
        place = {"host": firestore_host(), "project": f"p-{secrets.token_hex(8)}"}
        note.write_text(json.dumps(place))
    place = json.loads(note.read_text())
    documents = FirestoreDocuments(place["project"], "(default)", SystemClock())
    with environment(FIRESTORE_EMULATOR_HOST=place["host"]):
        documents.get(Ref("runs", "the-first-call-connects"))
    try:
        yield documents
    finally:
        documents.close()


@contextlib.contextmanager
def folder_artifacts(folder: Path) -> Iterator[Artifacts]:
    yield FolderArtifacts(folder / "artifacts", SystemClock())


@contextlib.contextmanager
def cloud_storage_artifacts(_: Path) -> Iterator[Artifacts]:
    with storage_bucket() as (address, bucket), environment(STORAGE_EMULATOR_HOST=address):
        yield CloudStorageArtifacts(bucket, "bundle/one")


#: Each opens a store of its own for the folder; the same folder leads to the same store.
DOCUMENTS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Documents]]]] = {
    "sqlite": sqlite_documents,
    "firestore": firestore_documents,
}
ARTIFACTS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Artifacts]]]] = {
    "folder": folder_artifacts,
    "cloud storage": cloud_storage_artifacts,
}


def put(document: Document) -> DecideDocument[None]:
    """Decide that the document is to be stored, whatever is there."""
    return lambda _, __: Write(None, document)


def one_more(document: Document | None, _: datetime) -> Write[int]:
    """Decide that the count is one higher; the answer is the new count."""
    count = (document or {"count": 0})["count"] + 1
    return Write(count, {"count": count})


def count_up(kind: str, folder: Path, ref: Ref, times: int) -> None:
    """Count up in its own process."""
    with DOCUMENTS[kind](folder) as documents:
        for _ in range(times):
            documents.transact(ref, one_more)


def with_times_of(expected: Any, found: Any) -> Any:
    """Return what was found with its times as datetimes, wherever a datetime is expected."""
    if isinstance(expected, datetime) and isinstance(found, str):
        return datetime.fromisoformat(found)
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return {key: with_times_of(expected.get(key), value) for key, value in found.items()}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [with_times_of(*pair) for pair in zip(expected, found, strict=True)]
    return found
