"""What a call costs: each RPC is a way to the store and back, reads and writes are billed."""

import re
import threading
from datetime import datetime
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.domain.stored import Document, Ref, Write
from leasehold.ports.documents import Query
from tests.unit.adapters.firestore.wire import Place, Wire
from tests.worlds.stores import one_more, put


class RefusedError(Exception):
    """A rule of the domain says no."""


def refuse(_: Document | None, __: datetime) -> Write[None]:
    raise RefusedError


@pytest.mark.parametrize(("host", "owner"), [("127.0.0.1:9", "Bearer owner"), ("", None)])
def test_the_owner_of_an_emulator_calls_it_and_no_real_database(
    monkeypatch: pytest.MonkeyPatch,
    documents: FirestoreDocuments,
    wire: Wire,
    ref: Ref,
    host: str,
    owner: str | None,
) -> None:
    """Rules of an emulator, which are for others, are neither in the way nor evaluated."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", host)

    documents.get(ref)

    assert wire.headers.get("authorization") == owner


def test_a_transaction_is_begun_once_there_is_something_to_write(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    event = Ref(f"{ref}/trace", "000000")

    documents.transact(ref, lambda _, __: Write(None, {}, {event: {}}), in_transaction=True)

    assert wire.calls == ["BatchGetDocuments", "BeginTransaction", "Commit"]


def test_a_change_without_a_transaction_is_a_read_and_a_commit(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    documents.transact(ref, one_more)

    assert wire.calls == ["BatchGetDocuments", "Commit"]


def test_a_change_of_a_known_version_is_a_commit(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    known = documents.transact(ref, one_more).snapshot
    wire.calls.clear()

    documents.transact(ref, one_more, if_version=known)

    assert wire.calls == ["Commit"]


def test_more_documents_than_one_commit_takes_are_deleted_by_several(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    documents.transact(ref, one_more)
    wire.calls.clear()

    documents.delete_all([*(Ref(f"{ref}/trace", f"{number}") for number in range(300)), ref])

    assert wire.calls == ["Commit", "Commit"]
    assert documents.get(ref) is None


def test_nothing_is_committed_where_nothing_is_decided(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    documents.transact(ref, lambda _, __: Write(None))

    assert wire.calls == ["BatchGetDocuments"]


def test_no_transaction_is_begun_where_nothing_is_decided(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    documents.transact(ref, lambda _, __: Write(None), in_transaction=True)

    assert wire.calls == ["BatchGetDocuments"]


def test_no_transaction_is_begun_where_decide_raises(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    with pytest.raises(RefusedError):
        documents.transact(ref, refuse, in_transaction=True)

    assert wire.calls == ["BatchGetDocuments"]


def test_the_name_of_a_commit_is_no_part_of_a_document(
    documents: FirestoreDocuments, ref: Ref
) -> None:
    """It is stored beside what callers store, and they never see it."""
    committed = documents.transact(ref, put({"count": 1}))
    found = documents.get(ref)

    assert committed.snapshot is not None
    assert found is not None
    assert committed.snapshot.document == found.document == {"count": 1}
    assert committed.snapshot.version == found.version


def test_what_fits_is_counted_in_one_call_and_no_document_is_sent(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    trace = f"{ref}/trace"
    documents.transact(Ref(trace, "000000"), put({"count": 1}))
    wire.calls.clear()

    assert documents.count(Query(trace), 1000) == 1
    assert wire.calls == ["RunAggregationQuery"]


def test_no_call_starts_a_thread(monkeypatch: pytest.MonkeyPatch, place: Place, ref: Ref) -> None:
    """One for each read doubled what a read costs this process."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", place.host)
    documents = FirestoreDocuments(place.project, "(default)", SystemClock())
    started: set[str] = set()
    try:
        threading.setprofile(lambda *_: started.add(threading.current_thread().name))
        event = Ref(f"{ref}/trace", "000000")
        documents.transact(event, one_more)
        assert documents.count(Query(f"{ref}/trace"), 9) == 1
        assert [found.ref for found in documents.query(Query(f"{ref}/trace"))] == [event]
    finally:
        threading.setprofile(None)
        documents.close()

    assert started == set()


def test_no_count_keeps_memory(monkeypatch: pytest.MonkeyPatch, place: Place, ref: Ref) -> None:
    """A stream that is left before its end is kept as long as the channel: 21 KB for each count."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", place.host)
    documents = FirestoreDocuments(place.project, "(default)", SystemClock())

    def memory_after(counts: int) -> int:
        for _ in range(counts):
            documents.count(Query(f"{ref}/trace"), 9)
        (kib,) = re.findall(r"^VmRSS:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
        return int(kib)

    try:
        before = memory_after(100)
        after = memory_after(200)
    finally:
        documents.close()

    assert after - before < 1000, f"{before} KiB, then {after} KiB"
