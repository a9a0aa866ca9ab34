"""The time that decisions are made by is Firestore's, not the worker's."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.domain.stored import Document, Ref, Write
from leasehold.testing import FrozenClock
from tests.unit.adapters.firestore.wire import Place, Wire
from tests.worlds.stores import put


@pytest.fixture
def clock() -> FrozenClock:
    """A worker whose clock is wrong by years, and stands still."""
    return FrozenClock(datetime.fromisoformat("1999-01-01T00:00:00Z"))


@pytest.fixture
def wrong(place: Place, clock: FrozenClock) -> Iterator[FirestoreDocuments]:
    documents = FirestoreDocuments(
        place.project, "(default)", clock, connect=Wire(place.host).connect
    )
    yield documents
    documents.close()


def the_time(_: Document | None, now: datetime) -> Write[datetime]:
    return Write(now)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_decision_on_what_is_read_has_the_time_of_the_read(
    wrong: FirestoreDocuments, ref: Ref, *, in_transaction: bool
) -> None:
    stored = wrong.transact(ref, put({})).snapshot

    now = wrong.transact(ref, the_time, in_transaction=in_transaction).answer

    assert stored is not None
    assert stored.read_at <= now < stored.read_at + timedelta(seconds=10)


def test_a_decision_on_a_version_has_the_time_that_passed_since(
    wrong: FirestoreDocuments, clock: FrozenClock, ref: Ref
) -> None:
    """Nothing is read; the store's time is that of the snapshot and what a worker measured."""
    known = wrong.transact(ref, put({})).snapshot
    clock.advance(7.5)

    now = wrong.transact(ref, the_time, if_version=known).answer

    assert known is not None
    assert now == known.read_at + timedelta(seconds=7.5)


def test_what_was_written_was_so_at_the_time_of_its_commit(
    wrong: FirestoreDocuments, ref: Ref
) -> None:
    written = wrong.transact(ref, put({})).snapshot
    read = wrong.get(ref)

    assert written is not None
    assert read is not None
    assert read.version == written.version
    assert written.read_at <= read.read_at
