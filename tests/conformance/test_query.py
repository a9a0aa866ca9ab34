"""query: which documents, in which order, page by page."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.domain.stored import Document, Ref
from leasehold.errors import VersionConflictError
from leasehold.ports.documents import Documents, Query, Range, Snapshot
from tests.worlds.stores import put, with_times_of

START = datetime(2026, 3, 1, tzinfo=UTC)

#: Stores these documents of a test, by the last part of their ids; all have its pipeline.
Keep = Callable[..., None]


def minute(number: int) -> datetime:
    return START + timedelta(minutes=number)


@pytest.fixture
def keep(documents: Documents, unique: str) -> Keep:
    def keep(**kept: Document) -> None:
        for name, document in kept.items():
            documents.transact(
                Ref("runs", f"{unique}-{name}"), put({"pipeline": unique, **document})
            )

    return keep


def names(found: Iterable[Snapshot]) -> list[str]:
    """Return the last part of each id."""
    return [snapshot.ref.id.rpartition("-")[2] for snapshot in found]


def pages(documents: Documents, query: Callable[[Any], Query]) -> list[Sequence[Snapshot]]:
    """Return all pages, the empty one at the end too; each continues behind the one before."""
    found = [documents.query(query(None))]
    while found[-1]:
        last = found[-1][-1]
        order_by = query(None).order_by
        value = None if order_by is None else last.document[order_by]
        found.append(documents.query(query((value, last.ref.id))))
        assert len(found) < 50, "the pages do not end"
    return found


def test_a_query_answers_whole_documents(documents: Documents, keep: Keep, unique: str) -> None:
    keep(a={"createdAt": minute(1), "nested": {"list": [1, "two"]}})

    (found,) = documents.query(Query("runs", order_by="createdAt", equal={"pipeline": unique}))

    assert found.ref == Ref("runs", f"{unique}-a")
    assert found.document["nested"] == {"list": [1, "two"]}
    assert found.read_at.utcoffset() == timedelta(0)


def test_nothing_that_fits_is_an_empty_answer(documents: Documents, unique: str) -> None:
    found = documents.query(Query("runs", order_by="createdAt", equal={"pipeline": unique}))

    assert list(found) == []


def test_the_order_goes_up_or_down(documents: Documents, keep: Keep, unique: str) -> None:
    keep(b={"createdAt": minute(3)}, c={"createdAt": minute(1)}, a={"createdAt": minute(2)})
    mine = {"pipeline": unique}

    up = documents.query(Query("runs", order_by="createdAt", equal=mine))
    down = documents.query(Query("runs", order_by="createdAt", equal=mine, descending=True))

    assert names(up) == ["c", "a", "b"]
    assert names(down) == ["b", "a", "c"]


def test_ties_are_in_the_order_of_their_ids(documents: Documents, keep: Keep, unique: str) -> None:
    keep(b={"createdAt": START}, c={"createdAt": START}, a={"createdAt": START})
    mine = {"pipeline": unique}

    up = documents.query(Query("runs", order_by="createdAt", equal=mine))
    down = documents.query(Query("runs", order_by="createdAt", equal=mine, descending=True))

    assert names(up) == ["a", "b", "c"]
    assert names(down) == ["c", "b", "a"]


def test_times_are_ordered_to_the_microsecond(
    documents: Documents, keep: Keep, unique: str
) -> None:
    """Times with and without a fraction, which differ as texts, are still in their order."""
    keep(
        d={"createdAt": START + timedelta(seconds=1)},
        c={"createdAt": START + timedelta(microseconds=500_000)},
        b={"createdAt": START + timedelta(microseconds=1)},
        a={"createdAt": START},
    )

    found = documents.query(Query("runs", order_by="createdAt", equal={"pipeline": unique}))

    assert names(found) == ["a", "b", "c", "d"]


def test_documents_are_sorted_by_one_field_and_then_by_another(
    documents: Documents, keep: Keep, unique: str
) -> None:
    """The first run of each line is found in the index that has the lines in their order."""
    keep(
        a={"waitsIn": f"{unique} one", "line": "3"},
        b={"waitsIn": f"{unique} two", "line": "1"},
        c={"waitsIn": f"{unique} one", "line": "2"},
        d={"waitsIn": f"{unique} one"},
    )
    lines = Range("waitsIn", at_least=f"{unique} one", below=f"{unique} zero")
    query = Query("runs", order_by="waitsIn", then_by="line", range=lines)

    up, down = documents.query(query), documents.query(replace(query, descending=True))

    assert names(up) == ["c", "a", "b"]
    assert names(down) == ["b", "a", "c"]


@pytest.mark.parametrize("wrong", [{"order_by": None}, {"after": ("one", "r-1")}])
def test_a_second_field_to_sort_by_takes_a_first_and_no_pages(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="are not sorted by line alone, nor page by page"):
        Query("runs", **{"order_by": "waitsIn", "then_by": "line", **wrong})


def test_documents_without_the_ordered_field_are_left_out(
    documents: Documents, keep: Keep, unique: str
) -> None:
    """An idle run has no alarm, and no place in the order of alarms."""
    keep(a={"createdAt": minute(1)}, b={"other": 1}, c={"createdAt": minute(2)})

    found = documents.query(Query("runs", order_by="createdAt", equal={"pipeline": unique}))

    assert names(found) == ["a", "c"]


def test_a_document_that_loses_the_ordered_field_leaves_the_order(
    documents: Documents, keep: Keep, unique: str
) -> None:
    query = Query("runs", order_by="createdAt", equal={"pipeline": unique})
    keep(a={"createdAt": minute(1)}, b={"createdAt": minute(2)})
    keep(a={})

    assert names(documents.query(query)) == ["b"]

    keep(a={"createdAt": minute(3)})

    assert names(documents.query(query)) == ["b", "a"]


def test_fields_must_be_equal(documents: Documents, keep: Keep, unique: str) -> None:
    keep(
        a={"createdAt": minute(1), "status": "PENDING", "deadLettered": False},
        b={"createdAt": minute(2), "status": "ERROR", "deadLettered": True},
        c={"createdAt": minute(3), "status": "PENDING", "deadLettered": True},
        d={"createdAt": minute(4)},
    )

    def found(**equal: Any) -> list[str]:
        wanted = {"pipeline": unique, **equal}
        return names(documents.query(Query("runs", order_by="createdAt", equal=wanted)))

    assert found(status="PENDING") == ["a", "c"]
    assert found(deadLettered=True) == ["b", "c"]
    assert found(deadLettered=False) == ["a"]
    assert found(status="PENDING", deadLettered=True) == ["c"]
    assert found(status="COMPLETED") == []


def test_a_field_that_changes_is_found_by_its_new_value(
    documents: Documents, keep: Keep, unique: str
) -> None:
    keep(a={"createdAt": START, "status": "PENDING"})
    keep(a={"createdAt": START, "status": "ERROR"})

    def found(status: str) -> list[str]:
        wanted = {"pipeline": unique, "status": status}
        return names(documents.query(Query("runs", order_by="createdAt", equal=wanted)))

    assert found("ERROR") == ["a"]
    assert found("PENDING") == []


def test_a_document_written_back_as_it_was_read_keeps_its_place(
    documents: Documents, keep: Keep, unique: str
) -> None:
    """Its times may come back as text; they are times all the same."""
    query = Query("runs", order_by="createdAt", equal={"pipeline": unique})
    keep(a={"createdAt": START}, b={"createdAt": START + timedelta(microseconds=1)})
    copied = documents.get(Ref("runs", f"{unique}-a"))
    assert copied is not None

    documents.transact(Ref("runs", f"{unique}-c"), put(copied.document))
    documents.transact(copied.ref, put(copied.document))

    assert names(documents.query(query)) == ["a", "c", "b"]


def test_a_label_is_one_of_the_list(documents: Documents, keep: Keep, unique: str) -> None:
    keep(
        a={"createdAt": minute(1), "labels": ["team:a", "env:prod"]},
        b={"createdAt": minute(2), "labels": ["team:b"]},
        c={"createdAt": minute(3), "labels": ["env:prod"]},
        d={"createdAt": minute(4), "labels": []},
        e={"createdAt": minute(5)},
        f={"createdAt": minute(6), "labels": ["env:production"]},
    )
    query = Query(
        "runs",
        order_by="createdAt",
        equal={"pipeline": unique},
        contains=("labels", "env:prod"),
        descending=True,
    )

    assert names(documents.query(query)) == ["c", "a"]


@pytest.mark.parametrize("label", ['say:"hi"', "path:a\\b", "ä:ö", "mood:🙂", "half:'", "all:%_*"])
def test_a_label_can_be_any_text(documents: Documents, keep: Keep, unique: str, label: str) -> None:
    keep(a={"createdAt": START, "labels": [label]}, b={"createdAt": START, "labels": ["other"]})
    query = Query(
        "runs", order_by="createdAt", equal={"pipeline": unique}, contains=("labels", label)
    )

    assert names(documents.query(query)) == ["a"]


def test_a_range_has_its_lower_end_and_not_its_upper(
    documents: Documents, keep: Keep, unique: str
) -> None:
    """A run that is due at a moment itself is found by asking below the next microsecond."""
    keep(**{name: {"createdAt": minute(number)} for number, name in enumerate("abcde")})

    def found(range_: Range) -> list[str]:
        query = Query("runs", order_by="createdAt", equal={"pipeline": unique}, range=range_)
        return names(documents.query(query))

    assert found(Range("createdAt", at_least=minute(1), below=minute(3))) == ["b", "c"]
    assert found(Range("createdAt", at_least=minute(3))) == ["d", "e"]
    assert found(Range("createdAt", below=minute(2))) == ["a", "b"]
    assert found(Range("createdAt", below=minute(1) + timedelta(microseconds=1))) == ["a", "b"]
    assert found(Range("createdAt", at_least=minute(3), below=minute(3))) == []
    assert found(Range("createdAt")) == ["a", "b", "c", "d", "e"]


def test_the_alarms_of_a_shard_are_found(documents: Documents, keep: Keep, unique: str) -> None:
    """The query of the sweep; its own shard keeps the test by itself."""
    shard = int(unique.removeprefix("t-")[:12], 16)
    keep(
        late={"shard": shard, "alarmAt": minute(1)},
        due={"shard": shard, "alarmAt": minute(2)},
        early={"shard": shard, "alarmAt": minute(9)},
        rest={"shard": shard},
        else_={"shard": shard + 1, "alarmAt": minute(1)},
    )
    query = Query(
        "runs",
        order_by="alarmAt",
        equal={"shard": shard},
        range=Range("alarmAt", below=minute(5)),
    )

    assert names(documents.query(query)) == ["late", "due"]


def test_no_more_come_than_the_limit(documents: Documents, keep: Keep, unique: str) -> None:
    keep(**{name: {"createdAt": minute(number)} for number, name in enumerate("abcde")})

    found = documents.query(
        Query("runs", order_by="createdAt", equal={"pipeline": unique}, limit=3)
    )

    assert names(found) == ["a", "b", "c"]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_are_complete_and_without_doubles_even_with_ties(
    documents: Documents, keep: Keep, unique: str, limit: int, descending: bool
) -> None:
    kept = {name: {"createdAt": minute(number // 3)} for number, name in enumerate("abcdefgh")}
    keep(**kept, without={})

    found = pages(
        documents,
        lambda after: Query(
            "runs",
            order_by="createdAt",
            equal={"pipeline": unique},
            descending=descending,
            limit=limit,
            after=after,
        ),
    )

    expected = list("hgfedcba") if descending else list("abcdefgh")
    assert names(snapshot for page in found for snapshot in page) == expected
    assert all(len(page) <= limit for page in found)


def test_a_page_can_begin_behind_a_datetime(documents: Documents, keep: Keep, unique: str) -> None:
    keep(a={"createdAt": minute(1)}, b={"createdAt": minute(1)}, c={"createdAt": minute(2)})

    found = documents.query(
        Query(
            "runs",
            order_by="createdAt",
            equal={"pipeline": unique},
            after=(minute(1), f"{unique}-a"),
        )
    )

    assert names(found) == ["b", "c"]


def test_a_page_can_begin_behind_a_document_that_is_gone(
    documents: Documents, keep: Keep, unique: str
) -> None:
    keep(a={"createdAt": minute(1)}, b={"createdAt": minute(2)}, c={"createdAt": minute(3)})
    documents.delete(Ref("runs", f"{unique}-b"))

    found = documents.query(
        Query(
            "runs",
            order_by="createdAt",
            equal={"pipeline": unique},
            after=(minute(2), f"{unique}-b"),
        )
    )

    assert names(found) == ["c"]


def test_without_a_field_the_order_is_that_of_the_ids(documents: Documents, ref: Ref) -> None:
    """Ids are compared as text, so numbers in them are padded."""
    for name in ("10", "2", "a", "A", "ä", "01"):
        documents.transact(Ref(f"{ref}/trace", name), put({}))

    up = documents.query(Query(f"{ref}/trace"))
    down = documents.query(Query(f"{ref}/trace", descending=True))

    assert [found.ref.id for found in up] == ["01", "10", "2", "A", "a", "ä"]
    assert [found.ref.id for found in down] == ["ä", "a", "A", "2", "10", "01"]


@pytest.mark.parametrize("descending", [False, True])
def test_pages_go_on_by_id(documents: Documents, ref: Ref, descending: bool) -> None:
    for number in range(7):
        documents.transact(Ref(f"{ref}/trace", f"{number:06d}"), put({"number": number}))

    found = pages(
        documents,
        lambda after: Query(f"{ref}/trace", descending=descending, limit=3, after=after),
    )

    assert [len(page) for page in found] == [3, 3, 1, 0]
    numbers = [snapshot.document["number"] for page in found for snapshot in page]
    assert numbers == ([6, 5, 4, 3, 2, 1, 0] if descending else [0, 1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("descending", [False, True])
def test_ids_can_be_found_by_how_they_begin(
    documents: Documents, ref: Ref, descending: bool
) -> None:
    begin_so = ["b", "b-1", "b_1", "bz", "bé"]
    for name in ("a", *begin_so, "c"):
        documents.transact(Ref(f"{ref}/trace", name), put({}))
    query = Query(f"{ref}/trace", id_prefix="b", descending=descending, limit=2)

    found = pages(documents, lambda after: replace(query, after=after))
    ids = [one.ref.id for page in found for one in page]

    assert ids == (begin_so[::-1] if descending else begin_so)
    assert documents.count(query, 1000) == 5
    assert [one.ref.id for one in documents.query(replace(query, id_prefix="b-"))] == ["b-1"]
    assert list(documents.query(replace(query, id_prefix="d"))) == []


def test_ids_that_begin_so_have_no_other_order() -> None:
    with pytest.raises(ValueError, match="not sorted by createdAt"):
        Query("runs", order_by="createdAt", id_prefix="b")


def test_a_nested_collection_is_its_parents_own(documents: Documents, unique: str) -> None:
    """The trace of r-1 is not that of r-10, nor of the run below."""
    for run in (unique, f"{unique}0", f"{unique}/trace/x"):
        documents.transact(Ref(f"runs/{run}/trace", "000000"), put({"run": run}))

    (found,) = documents.query(Query(f"runs/{unique}/trace"))
    other = documents.get(Ref(f"runs/{unique}0/trace", "000000"))

    assert found.ref == Ref(f"runs/{unique}/trace", "000000")
    assert found.document == {"run": unique}
    assert other is not None
    assert other.document == {"run": f"{unique}0"}


def test_a_query_sees_what_was_committed_before_it(
    documents: Documents, keep: Keep, unique: str
) -> None:
    query = Query("runs", order_by="createdAt", equal={"pipeline": unique})

    for number, name in enumerate("abc"):
        keep(**{name: {"createdAt": minute(number)}})
        assert len(documents.query(query)) == number + 1


def test_only_the_fields_that_are_asked_for_are_read(
    documents: Documents, keep: Keep, unique: str
) -> None:
    """A list of runs reads no inputs and outputs; it is a page of a few kilobytes."""
    record = {"status": "COMPLETED", "output": "x" * 1000, "progress": {"fraction": 0.5}}
    keep(
        a={"createdAt": minute(1), "paused": True, "steps": {"my-step": record, "b": record}},
        b={"createdAt": minute(2), "paused": False, "error": {"code": "late", "text": "é"}},
    )
    fields = ("paused", "steps.my-step.status", "steps.my-step.progress", "error.code", "none.at")

    found = documents.query(
        Query("runs", order_by="createdAt", equal={"pipeline": unique}, fields=fields)
    )

    step = {"status": "COMPLETED", "progress": {"fraction": 0.5}}
    assert [with_times_of({"createdAt": START}, one.document) for one in found] == [
        {"createdAt": minute(1), "paused": True, "steps": {"my-step": step}},
        {"createdAt": minute(2), "paused": False, "error": {"code": "late"}},
    ]


def test_more_fields_can_be_asked_for_than_a_function_has_arguments(
    documents: Documents, keep: Keep, unique: str
) -> None:
    keep(a={"createdAt": START, **{f"f{number}": number for number in range(301)}})
    fields = tuple(f"f{number}" for number in range(301))

    (found,) = documents.query(
        Query("runs", order_by="createdAt", equal={"pipeline": unique}, fields=fields)
    )

    assert [found.document[field] for field in fields] == list(range(301))


def test_parts_of_documents_can_be_paged_through(
    documents: Documents, keep: Keep, unique: str
) -> None:
    keep(**{f"r{number}": {"createdAt": minute(number), "n": number} for number in range(5)})

    found = pages(
        documents,
        lambda after: Query(
            "runs",
            order_by="createdAt",
            equal={"pipeline": unique},
            descending=True,
            limit=2,
            after=after,
            fields=("n",),
        ),
    )

    assert [[one.document["n"] for one in page] for page in found] == [[4, 3], [2, 1], [0], []]


def test_nothing_is_decided_on_part_of_a_document(
    documents: Documents, keep: Keep, unique: str
) -> None:
    """Unread fields would be lost."""
    keep(a={"createdAt": START, "kept": 1})
    query = Query("runs", order_by="createdAt", equal={"pipeline": unique}, fields=("pipeline",))
    (part,) = documents.query(query)

    with pytest.raises(VersionConflictError):
        documents.transact(part.ref, put({"pipeline": unique}), if_version=part)
    with pytest.raises(VersionConflictError):
        documents.delete(part.ref, if_version=part)

    whole = documents.get(part.ref)
    assert whole is not None
    assert whole.document["kept"] == 1


@pytest.mark.parametrize("path", ["", "a.", "a b", 'a"', "a'", "`a`", "steps.*.status"])
def test_an_invalid_path_is_an_error_of_the_program(path: str) -> None:
    with pytest.raises(ValueError, match="cannot be asked for"):
        Query("runs", order_by="createdAt", fields=(path,))


def test_what_fits_is_counted_up_to_a_bound(documents: Documents, keep: Keep, unique: str) -> None:
    """As a query finds it, whatever its limit is."""
    statuses = ("ERROR", "PENDING", "PENDING", "PENDING", "COMPLETED")
    kept: dict[str, Document] = {
        f"r{number}": {"createdAt": minute(number), "status": status, "labels": [f"n:{number % 2}"]}
        for number, status in enumerate(statuses)
    }
    keep(**kept, without={"status": "PENDING"})
    mine = {"pipeline": unique}
    all_runs = Query("runs", order_by="createdAt", equal=mine, descending=True, limit=1)
    pending = replace(all_runs, equal={**mine, "status": "PENDING"})

    def count(query: Query, most: int = 1000) -> int:
        assert documents.count(query, most) == len(documents.query(replace(query, limit=most)))
        return documents.count(query, most)

    assert count(all_runs) == 5
    assert [count(pending, most) for most in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert count(replace(pending, fields=("status",))) == 3
    assert count(replace(pending, equal={**mine, "status": "BLOCKED"})) == 0
    assert count(replace(all_runs, contains=("labels", "n:0"))) == 3
    assert count(replace(all_runs, range=Range("createdAt", minute(1), minute(3)))) == 2
    assert count(replace(all_runs, after=(minute(3), f"{unique}-r3"))) == 3


def test_documents_below_another_are_counted_by_themselves(documents: Documents, ref: Ref) -> None:
    for name in ("a", "b", "c"):
        documents.transact(Ref(f"{ref}/trace", name), put({}))

    assert documents.count(Query(f"{ref}/trace"), 1000) == 3
    assert documents.count(Query(f"{ref}/trace", descending=True), 2) == 2
    assert documents.count(Query(f"{ref}x/trace"), 1000) == 0


def test_nothing_is_counted_that_cannot_be_asked_for(documents: Documents) -> None:
    with pytest.raises(ValueError, match="cannot be asked for"):
        documents.count(Query("runs", equal={"input": 1}), 1000)
