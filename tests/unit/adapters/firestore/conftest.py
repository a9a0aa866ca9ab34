from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.domain.stored import Ref
from tests.unit.adapters.firestore.wire import Place, Wire
from tests.worlds.emulators import firestore_host, need_firestore


@pytest.fixture(scope="session")
def place() -> Place:
    """A project of the emulator that these tests have for themselves."""
    need_firestore()
    return Place(firestore_host(), f"p-{secrets.token_hex(8)}")


@pytest.fixture
def wire(place: Place) -> Wire:
    return Wire(place.host)


@pytest.fixture
def documents(place: Place, wire: Wire) -> Iterator[FirestoreDocuments]:
    """A store whose RPCs the wire counts, loses and delays."""
    documents = FirestoreDocuments(place.project, "(default)", SystemClock(), connect=wire.connect)
    yield documents
    documents.close()


@pytest.fixture
def other(place: Place) -> Iterator[FirestoreDocuments]:
    """The same store for another process, with a wire that works."""
    wire = Wire(place.host)
    other = FirestoreDocuments(place.project, "(default)", SystemClock(), connect=wire.connect)
    yield other
    other.close()


@pytest.fixture
def ref() -> Ref:
    return Ref("runs", f"r-{secrets.token_hex(8)}")


@pytest.fixture
def root() -> Path:
    """Where the sources are, for processes of their own."""
    return Path(os.fspath(__file__)).parents[4]
