"""However many count at the same time, each count is there in the end."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leasehold.domain.stored import Ref, Write
from leasehold.errors import DocumentExistsError, VersionConflictError
from leasehold.ports.documents import Documents, Query
from tests.worlds.stores import count_up, one_more, put


def count_of(documents: Documents, ref: Ref) -> int:
    found = documents.get(ref)
    assert found is not None
    return int(found.document["count"])


@pytest.mark.parametrize("in_transaction", [False, True])
def test_threads_lose_no_update(documents: Documents, ref: Ref, in_transaction: bool) -> None:
    """Each answer is there once: no two of them decided on the same document."""
    how_many, end = 8, 24

    def count(_: int) -> int:
        return documents.transact(ref, one_more, in_transaction=in_transaction).answer

    with ThreadPoolExecutor(how_many) as threads:
        answers = list(threads.map(count, range(end)))

    assert sorted(answers) == list(range(1, end + 1))
    assert count_of(documents, ref) == end


def test_threads_that_write_on_snapshots_lose_no_update(documents: Documents, ref: Ref) -> None:
    documents.transact(ref, put({"count": 0}))

    def count(_: int) -> None:
        while True:
            known = documents.get(ref)
            try:
                documents.transact(ref, one_more, if_version=known)
            except VersionConflictError:
                continue
            return

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(16)))

    assert count_of(documents, ref) == 16


def test_processes_lose_no_update(kind: str, documents: Documents, ref: Ref, folder: Path) -> None:
    spawned = multiprocessing.get_context("spawn")
    processes = [spawned.Process(target=count_up, args=(kind, folder, ref, 10)) for _ in range(2)]
    for process in processes:
        process.start()

    count_up(kind, folder, ref, 10)

    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert count_of(documents, ref) == 30


def test_of_those_that_create_the_same_document_one_succeeds(
    documents: Documents, ref: Ref
) -> None:
    contested = Ref(f"{ref}/trace", "000000")

    def create(number: int) -> int | None:
        mine = Ref("runs", f"{ref.id}-{number}")
        try:
            decided = Write(number, {"by": number}, {contested: {"by": number}})
            return documents.transact(mine, lambda _, __: decided).answer
        except DocumentExistsError:
            assert documents.get(mine) is None
            return None

    with ThreadPoolExecutor(8) as threads:
        winners = [answer for answer in threads.map(create, range(16)) if answer is not None]

    found = documents.get(contested)
    assert found is not None
    assert winners == [found.document["by"]]


def test_a_reader_sees_a_commit_whole(documents: Documents, ref: Ref) -> None:
    """The event of a count is never there without it: read the event first, then the count."""

    def count_with_event(_: int) -> None:
        found = documents.get(ref)
        count = 1 if found is None else found.document["count"] + 1
        event = Ref(f"{ref}/trace", f"{count:06d}")
        documents.transact(ref, lambda _, __: Write(None, {"count": count}, {event: {}}))

    with ThreadPoolExecutor(1) as writer:
        writing = [writer.submit(count_with_event, number) for number in range(40)]
        while not writing[-1].done():
            events = documents.query(Query(f"{ref}/trace", limit=1000))
            assert not events or len(events) <= count_of(documents, ref)
        for each in writing:
            each.result()

    assert count_of(documents, ref) == 40
    assert len(documents.query(Query(f"{ref}/trace", limit=1000))) == 40
