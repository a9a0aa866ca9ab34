"""transact, get and delete: one document, and what is created with it."""

from datetime import UTC, datetime, timedelta

import pytest

from leasehold.domain.stored import Document, Ref, Write
from leasehold.errors import DocumentExistsError, VersionConflictError
from leasehold.ports.documents import Documents, Query
from tests.worlds.stores import one_more, put


class RefusedError(Exception):
    """A rule of the domain says no."""


def test_a_document_that_is_missing_is_none(documents: Documents, ref: Ref) -> None:
    assert documents.get(ref) is None


def test_what_is_stored_can_be_read(documents: Documents, ref: Ref) -> None:
    documents.transact(ref, put({"count": 1}))

    found = documents.get(ref)

    assert found is not None
    assert found.ref == ref
    assert found.document == {"count": 1}
    assert found.read_at.utcoffset() == timedelta(0)


def test_a_document_is_stored_in_place_of_the_one_before(documents: Documents, ref: Ref) -> None:
    """Fields are not merged: one that is left out is gone."""
    documents.transact(ref, put({"count": 1, "left": "over"}))

    documents.transact(ref, put({"count": 2}))

    found = documents.get(ref)
    assert found is not None
    assert found.document == {"count": 2}


def test_decide_gets_what_is_stored(documents: Documents, ref: Ref) -> None:
    given: list[Document | None] = []

    def note(document: Document | None, _: datetime) -> Write[None]:
        given.append(document)
        return Write(None, {"count": 1})

    documents.transact(ref, note)
    documents.transact(ref, note)

    assert given[0] is None
    assert given[-1] == {"count": 1}


def test_decide_gets_the_time_of_the_store_in_utc(documents: Documents, ref: Ref) -> None:
    first = documents.transact(ref, lambda _, now: Write(now, {"count": 1}))
    second = documents.transact(ref, lambda _, now: Write(now))

    assert first.answer.utcoffset() == timedelta(0)
    assert first.answer <= second.answer


def test_the_answer_is_passed_through(documents: Documents, ref: Ref) -> None:
    answer = object()

    committed = documents.transact(ref, lambda _, __: Write(answer, {"count": 1}))

    assert committed.answer is answer


def test_the_document_comes_back_as_it_was_stored(documents: Documents, ref: Ref) -> None:
    committed = documents.transact(ref, put({"count": 1}))

    assert committed.snapshot is not None
    assert committed.snapshot.ref == ref
    assert committed.snapshot.document == {"count": 1}


def test_a_document_that_is_left_alone_comes_back_as_it_is(documents: Documents, ref: Ref) -> None:
    documents.transact(ref, put({"count": 1}))

    committed = documents.transact(ref, lambda _, __: Write("nothing to do"))

    assert committed.answer == "nothing to do"
    assert committed.snapshot is not None
    assert committed.snapshot.document == {"count": 1}


def test_nothing_that_is_left_alone_stays_nothing(documents: Documents, ref: Ref) -> None:
    committed = documents.transact(ref, lambda _, __: Write("nothing there"))

    assert committed.snapshot is None
    assert documents.get(ref) is None


def test_what_decide_raises_is_passed_on_and_nothing_is_written(
    documents: Documents, ref: Ref
) -> None:
    refused = RefusedError("no")
    documents.transact(ref, put({"count": 1}))

    def refuse(_: Document | None, __: datetime) -> Write[None]:
        raise refused

    with pytest.raises(RefusedError) as raised:
        documents.transact(ref, refuse)

    assert raised.value is refused
    found = documents.get(ref)
    assert found is not None
    assert found.document == {"count": 1}


def test_a_store_goes_on_after_decide_has_raised(documents: Documents, ref: Ref) -> None:
    def refuse(_: Document | None, __: datetime) -> Write[None]:
        raise RefusedError

    with pytest.raises(RefusedError):
        documents.transact(ref, refuse)

    assert documents.transact(ref, one_more).answer == 1


def test_further_documents_are_created_in_the_same_commit(documents: Documents, ref: Ref) -> None:
    """A manifest and its trace events stand together, or not at all."""
    events = {Ref(f"{ref}/trace", f"{number:06d}"): {"number": number} for number in range(3)}

    documents.transact(ref, lambda _, __: Write(None, {"traced": 3}, events))

    assert documents.get(ref) is not None
    for event, document in events.items():
        found = documents.get(event)
        assert found is not None
        assert found.document == document


def test_a_further_document_can_be_of_the_same_collection(documents: Documents, ref: Ref) -> None:
    """A run that is started anew from a dead one is created beside it."""
    second = Ref("runs", f"{ref.id}-again")

    documents.transact(ref, lambda _, __: Write(None, {"count": 1}, {second: {"count": 2}}))

    found = documents.get(second)
    assert found is not None
    assert found.document == {"count": 2}


def test_further_documents_are_created_where_the_main_one_is_left_alone(
    documents: Documents, ref: Ref
) -> None:
    event = Ref(f"{ref}/trace", "000000")
    documents.transact(ref, put({"count": 1}))

    documents.transact(ref, lambda _, __: Write(None, creates={event: {"number": 0}}))

    found, main = documents.get(event), documents.get(ref)
    assert found is not None
    assert main is not None
    assert main.document == {"count": 1}


def test_one_document_too_many_leaves_everything_as_it_was(documents: Documents, ref: Ref) -> None:
    """All or nothing: neither the main document nor the other creates, before or after it."""
    before, there, after = (Ref(f"{ref}/trace", f"{number:06d}") for number in range(3))
    documents.transact(ref, put({"count": 1}))
    documents.transact(there, put({"kept": True}))
    creates = {before: {"kept": False}, there: {"kept": False}, after: {"kept": False}}

    with pytest.raises(DocumentExistsError) as raised:
        documents.transact(ref, lambda _, __: Write(None, {"count": 2}, creates))

    assert raised.value.details["ref"] == str(there)
    main, kept = documents.get(ref), documents.get(there)
    assert main is not None
    assert main.document == {"count": 1}
    assert kept is not None
    assert kept.document == {"kept": True}
    assert documents.get(before) is None
    assert documents.get(after) is None


def test_a_main_document_is_not_made_where_a_create_fails(documents: Documents, ref: Ref) -> None:
    event = Ref(f"{ref}/trace", "000000")
    documents.transact(event, put({"number": 0}))

    with pytest.raises(DocumentExistsError):
        documents.transact(ref, lambda _, __: Write(None, {"count": 1}, {event: {"number": 1}}))

    assert documents.get(ref) is None


def test_a_document_that_is_deleted_is_gone(documents: Documents, ref: Ref) -> None:
    documents.transact(ref, put({"count": 1}))

    documents.delete(ref)

    assert documents.get(ref) is None
    assert documents.transact(ref, one_more).answer == 1


def test_a_document_that_is_missing_can_be_deleted(documents: Documents, ref: Ref) -> None:
    documents.delete(ref)

    assert documents.get(ref) is None


def test_deleting_a_document_leaves_those_below_it(documents: Documents, ref: Ref) -> None:
    """Firestore does so; code may not rely on more."""
    event = Ref(f"{ref}/trace", "000000")
    documents.transact(ref, lambda _, __: Write(None, {"count": 1}, {event: {"number": 0}}))

    documents.delete(ref)

    assert documents.get(event) is not None


def test_what_is_expected_to_be_new_is_stored(documents: Documents, ref: Ref) -> None:
    event = Ref(f"{ref}/trace", "000000")

    committed = documents.transact(
        ref, lambda _, __: Write(None, {"count": 1}, {event: {}}), is_new=True
    )

    again = documents.transact(ref, one_more, if_version=committed.snapshot)
    assert again.answer == 2
    assert documents.get(event) is not None


def test_what_is_wrongly_expected_to_be_new_is_decided_on_as_it_is(
    documents: Documents, ref: Ref
) -> None:
    documents.transact(ref, put({"count": 1}))

    committed = documents.transact(ref, one_more, is_new=True)

    assert committed.answer == 2


def test_nothing_is_written_if_an_expected_absence_is_wrong(documents: Documents, ref: Ref) -> None:
    event = Ref(f"{ref}/trace", "000000")
    documents.transact(event, put({"at": 0}))

    with pytest.raises(DocumentExistsError):
        documents.transact(ref, lambda _, __: Write(None, {"count": 1}, {event: {}}), is_new=True)

    assert documents.get(ref) is None


@pytest.fixture
def beside(ref: Ref) -> Ref:
    """A document of another collection, as a delivery is of the run that owes it."""
    return Ref("deliveries", f"{ref.id}:1:log")


def test_a_put_is_stored_in_the_same_commit_in_place_of_whatever_is_there(
    documents: Documents, ref: Ref, beside: Ref
) -> None:
    """Leftovers of an earlier run of that id fail no commit, and are deleted."""
    new = Ref("deliveries", f"{ref.id}:1:mail")
    documents.transact(beside, put({"state": "announced", "left": "over"}))
    puts = {beside: {"state": "due"}, new: {"state": "due"}}

    documents.transact(ref, lambda _, __: Write(None, {"count": 1}, puts=puts))

    found = [documents.get(one) for one in (ref, beside, new)]
    expected = [{"count": 1}, {"state": "due"}, {"state": "due"}]
    assert [one and one.document for one in found] == expected


def test_a_put_is_found_by_its_fields_and_no_more_by_those_before(
    documents: Documents, ref: Ref, beside: Ref
) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for state in ("announced", "due"):
        puts = {beside: {"state": state, "runId": ref.id, "createdAt": at}}
        documents.transact(ref, lambda _, __, puts=puts: Write(None, {"count": 1}, puts=puts))

    def found(**equal: str) -> list[Ref]:
        query = Query("deliveries", order_by="createdAt", equal=equal, descending=True)
        return [one.ref for one in documents.query(query) if one.ref == beside]

    assert (found(runId=ref.id), found(state="due")) == ([beside], [beside])
    assert found(state="announced") == []


def test_a_writer_that_read_a_replaced_value_writes_nothing(
    documents: Documents, ref: Ref, beside: Ref
) -> None:
    known = documents.transact(beside, put({"count": 1})).snapshot
    documents.transact(ref, lambda _, __: Write(None, {}, puts={beside: {"count": 1}}))

    with pytest.raises(VersionConflictError):
        documents.transact(beside, one_more, if_version=known)


def test_a_put_is_not_stored_where_its_commit_is_refused(
    documents: Documents, ref: Ref, beside: Ref
) -> None:
    event, puts = Ref(f"{ref}/trace", "000000"), {beside: {"state": "due"}}
    old = documents.transact(ref, put({"count": 1})).snapshot
    documents.transact(event, put({"number": 0}))

    with pytest.raises(DocumentExistsError):
        documents.transact(ref, lambda _, __: Write(None, {"count": 2}, {event: {}}, puts))
    documents.transact(ref, put({"count": 3}))
    with pytest.raises(VersionConflictError):
        documents.transact(ref, lambda _, __: Write(None, {}, puts=puts), if_version=old)

    assert documents.get(beside) is None


def test_a_put_needs_a_document_whose_version_it_is_bound_to(beside: Ref) -> None:
    """A commit that is sent twice would overwrite later changes."""
    with pytest.raises(ValueError, match="puts need a document"):
        Write(None, puts={beside: {"state": "due"}})
