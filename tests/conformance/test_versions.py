"""if_version: a write on what is known, without a read."""

from datetime import datetime

import pytest

from leasehold.domain.stored import Document, Ref, Write
from leasehold.errors import DocumentExistsError, VersionConflictError
from leasehold.ports.documents import Documents, Query, Snapshot
from tests.worlds.stores import one_more, put


def stored(documents: Documents, ref: Ref) -> Snapshot:
    """Store a count of 1 and return it as it was read."""
    documents.transact(ref, put({"count": 1}))
    found = documents.get(ref)
    assert found is not None
    return found


def made_stale(documents: Documents, ref: Ref) -> Snapshot:
    """Return a snapshot of the count 1, where 2 is stored since."""
    known = stored(documents, ref)
    documents.transact(ref, one_more)
    return known


def count_of(documents: Documents, ref: Ref) -> int:
    found = documents.get(ref)
    assert found is not None
    return int(found.document["count"])


def test_a_document_that_was_read_can_be_written(documents: Documents, ref: Ref) -> None:
    known = stored(documents, ref)

    committed = documents.transact(ref, one_more, if_version=known)

    assert committed.answer == 2
    assert count_of(documents, ref) == 2


def test_decide_gets_the_document_of_the_snapshot(documents: Documents, ref: Ref) -> None:
    """Nothing is read: a worker under a lease knows the document from its own last write."""
    known = made_stale(documents, ref)
    given: list[Document | None] = []

    def note(document: Document | None, _: datetime) -> Write[None]:
        given.append(document)
        return Write(None)

    documents.transact(ref, note, if_version=known)

    assert given == [{"count": 1}]


def test_each_write_answers_the_snapshot_for_the_next(documents: Documents, ref: Ref) -> None:
    known = documents.transact(ref, one_more).snapshot

    for _ in range(5):
        known = documents.transact(ref, one_more, if_version=known).snapshot

    assert count_of(documents, ref) == 6


def test_a_document_left_alone_answers_a_snapshot_to_write_on(
    documents: Documents, ref: Ref
) -> None:
    known = stored(documents, ref)
    looked_at = documents.transact(ref, lambda _, __: Write(None), if_version=known).snapshot

    documents.transact(ref, one_more, if_version=looked_at)

    assert count_of(documents, ref) == 2


def test_a_snapshot_of_a_query_can_be_written_on(documents: Documents, ref: Ref) -> None:
    documents.transact(ref, put({"count": 1}))
    event = Ref(f"{ref}/trace", "000000")
    documents.transact(event, put({"count": 1}))

    (known,) = documents.query(Query(f"{ref}/trace"))
    documents.transact(event, one_more, if_version=known)

    assert count_of(documents, event) == 2


def test_a_stale_snapshot_writes_nothing(documents: Documents, ref: Ref) -> None:
    known = made_stale(documents, ref)

    with pytest.raises(VersionConflictError) as raised:
        documents.transact(ref, put({"count": 9}), if_version=known)

    assert raised.value.details["ref"] == str(ref)
    assert raised.value.retryable
    assert count_of(documents, ref) == 2


def test_a_write_that_changes_nothing_makes_a_snapshot_stale(
    documents: Documents, ref: Ref
) -> None:
    """The version counts writes, not differences."""
    known = stored(documents, ref)
    documents.transact(ref, put({"count": 1}))

    with pytest.raises(VersionConflictError):
        documents.transact(ref, one_more, if_version=known)


def test_a_stale_snapshot_creates_nothing(documents: Documents, ref: Ref) -> None:
    known = made_stale(documents, ref)
    event = Ref(f"{ref}/trace", "000000")

    with pytest.raises(VersionConflictError):
        documents.transact(
            ref, lambda _, __: Write(None, {"count": 9}, {event: {}}), if_version=known
        )

    assert documents.get(event) is None


def test_a_stale_snapshot_creates_nothing_even_where_the_document_is_left_alone(
    documents: Documents, ref: Ref
) -> None:
    known = made_stale(documents, ref)
    event = Ref(f"{ref}/trace", "000000")

    with pytest.raises(VersionConflictError):
        documents.transact(ref, lambda _, __: Write(None, creates={event: {}}), if_version=known)

    assert documents.get(event) is None


def test_a_stale_snapshot_is_told_before_a_create_that_exists(
    documents: Documents, ref: Ref
) -> None:
    """Who decided on an old count of events names events that are there: it has to read again."""
    known = made_stale(documents, ref)
    event = Ref(f"{ref}/trace", "000000")
    documents.transact(event, put({"number": 0}))

    with pytest.raises(VersionConflictError):
        documents.transact(
            ref, lambda _, __: Write(None, {"count": 9}, {event: {}}), if_version=known
        )


def test_a_create_that_exists_is_told_to_a_snapshot_that_is_not_stale(
    documents: Documents, ref: Ref
) -> None:
    known = stored(documents, ref)
    event = Ref(f"{ref}/trace", "000000")
    documents.transact(event, put({"number": 0}))

    with pytest.raises(DocumentExistsError):
        documents.transact(
            ref, lambda _, __: Write(None, {"count": 9}, {event: {}}), if_version=known
        )

    assert count_of(documents, ref) == 1
    documents.transact(ref, one_more, if_version=known)


def test_a_snapshot_of_a_deleted_document_is_stale(documents: Documents, ref: Ref) -> None:
    known = stored(documents, ref)
    documents.delete(ref)

    with pytest.raises(VersionConflictError):
        documents.transact(ref, one_more, if_version=known)

    assert documents.get(ref) is None


def test_a_document_made_anew_is_not_the_one_that_was_deleted(
    documents: Documents, ref: Ref
) -> None:
    """Its versions must not begin where the first one's began."""
    known = stored(documents, ref)
    documents.delete(ref)
    documents.transact(ref, put({"count": 7}))

    with pytest.raises(VersionConflictError):
        documents.transact(ref, one_more, if_version=known)

    assert count_of(documents, ref) == 7


def test_what_decide_raises_is_passed_on_with_a_snapshot_too(
    documents: Documents, ref: Ref
) -> None:
    known = stored(documents, ref)

    def refuse(_: Document | None, __: datetime) -> Write[None]:
        raise LookupError

    with pytest.raises(LookupError):
        documents.transact(ref, refuse, if_version=known)

    assert count_of(documents, ref) == 1
    documents.transact(ref, one_more, if_version=known)


def test_a_document_is_deleted_at_its_version_alone(documents: Documents, ref: Ref) -> None:
    """Deleting a version that was read deletes no later write."""
    stale = made_stale(documents, ref)

    with pytest.raises(VersionConflictError):
        documents.delete(ref, if_version=stale)
    count = count_of(documents, ref)
    current = documents.get(ref)
    documents.delete(ref, if_version=current)
    documents.delete(ref, if_version=current)

    assert count == 2
    assert documents.get(ref) is None


def test_documents_that_are_named_are_deleted_and_nothing_beside_them(
    documents: Documents, ref: Ref
) -> None:
    below, beside = f"{ref}/trace", f"{ref}-2/trace"
    documents.transact(ref, put({"count": 1}))
    for number in range(5):
        documents.transact(Ref(below, f"{number}"), put({"type": "x"}))
    documents.transact(Ref(beside, "0"), put({"type": "x"}))

    documents.delete_all([])
    for _ in range(2):
        documents.delete_all([Ref(below, f"{number}") for number in range(4)])
    documents.give_back_space()

    assert [one.ref.id for one in documents.query(Query(below))] == ["4"]
    assert [one.ref.id for one in documents.query(Query(beside))] == ["0"]
    assert count_of(documents, ref) == 1
