"""RPCs that fail: a commit that happened is known, one that did not is repeated."""

import socket
import threading
import time
from itertools import pairwise
from typing import Any

import grpc
import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.adapters.firestore.connection import Connection, official_client
from leasehold.adapters.firestore.retry_budget import RetryBudget
from leasehold.domain.stored import Ref, Write
from leasehold.errors import StoreUnavailableError, VersionConflictError
from leasehold.ports.documents import Query
from tests.unit.adapters.firestore.wire import Fault, Wire
from tests.worlds.stores import one_more, put

UNCLEAR = [
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.CANCELLED,
]
NOT_NOW = [grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED]

#: The ways to change a document. All know the codes from one place, so the gate has each way and
#: each code once.
WAYS = ["read", "transaction", "version"]


def count_up(documents: FirestoreDocuments, ref: Ref, way: str) -> int:
    """Count one up, in one of the ways."""
    options: dict[str, Any] = {"in_transaction": way == "transaction"}
    if way == "version":
        options["if_version"] = documents.get(ref)
    return documents.transact(ref, one_more, **options).answer


def count_of(documents: FirestoreDocuments, ref: Ref) -> int:
    found = documents.get(ref)
    assert found is not None
    return int(found.document["count"])


@pytest.fixture(autouse=True)
def one(other: FirestoreDocuments, ref: Ref) -> None:
    """All counts begin at one."""
    other.transact(ref, put({"count": 1}))


@pytest.mark.cover(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("code", UNCLEAR, ids=str)
def test_a_commit_that_happened_and_lost_its_answer_is_known(
    documents: FirestoreDocuments, wire: Wire, ref: Ref, way: str, code: grpc.StatusCode
) -> None:
    wire.faults.append(Fault("Commit", code, after=True))

    answer = count_up(documents, ref, way)

    assert answer == 2
    assert count_of(documents, ref) == 2


@pytest.mark.cover(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("code", [*UNCLEAR, *NOT_NOW], ids=str)
def test_a_commit_that_did_not_happen_is_repeated(
    documents: FirestoreDocuments, wire: Wire, ref: Ref, way: str, code: grpc.StatusCode
) -> None:
    wire.faults += [Fault("Commit", code), Fault("Commit", code)]

    answer = count_up(documents, ref, way)

    assert answer == 2
    assert count_of(documents, ref) == 2


@pytest.mark.parametrize("way", WAYS)
def test_answers_that_are_lost_while_a_lost_answer_is_looked_for_are_borne(
    documents: FirestoreDocuments, wire: Wire, ref: Ref, way: str
) -> None:
    answer_lost = Fault("Commit", grpc.StatusCode.UNAVAILABLE, after=True)
    then = Fault("BatchGetDocuments", grpc.StatusCode.UNAVAILABLE)
    answer_lost.meanwhile = lambda: wire.faults.extend([then, then])
    wire.faults.append(answer_lost)

    answer = count_up(documents, ref, way)

    assert answer == 2
    assert count_of(documents, ref) == 2


@pytest.mark.parametrize("way", ["read", "transaction"])
def test_an_equal_write_of_another_process_is_not_taken_for_ours(
    documents: FirestoreDocuments, other: FirestoreDocuments, wire: Wire, ref: Ref, way: str
) -> None:
    """Both counted to 2; compared by content, the second count would be lost."""

    def meanwhile() -> None:
        wire.faults.clear()
        other.transact(ref, put({"count": 2}))

    code = grpc.StatusCode.UNAVAILABLE
    wire.faults.append(Fault("Commit", code, meanwhile=meanwhile))

    answer = count_up(documents, ref, way)

    assert answer == 3
    assert count_of(documents, ref) == 3


def test_an_equal_write_of_another_process_is_a_conflict_for_a_version(
    documents: FirestoreDocuments, other: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    fault = Fault("Commit", grpc.StatusCode.UNAVAILABLE)
    fault.meanwhile = lambda: other.transact(ref, put({"count": 2}))
    wire.faults.append(fault)

    with pytest.raises(VersionConflictError):
        count_up(documents, ref, "version")


def test_a_commit_that_was_overwritten_since_is_known_by_what_it_created(
    documents: FirestoreDocuments, other: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    event = Ref(f"{ref}/trace", "000000")
    known = documents.get(ref)
    fault = Fault("Commit", grpc.StatusCode.UNAVAILABLE, after=True)
    fault.meanwhile = lambda: other.transact(ref, put({"count": 9}))
    wire.faults.append(fault)

    committed = documents.transact(
        ref, lambda _, __: Write("ours", {"count": 2}, {event: {}}), if_version=known
    )

    assert committed.answer == "ours"
    assert committed.snapshot is not None
    assert committed.snapshot.document == {"count": 2}
    with pytest.raises(VersionConflictError):
        documents.transact(ref, one_more, if_version=committed.snapshot)


def test_what_is_created_alone_is_known_too(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    event = Ref(f"{ref}/trace", "000000")
    wire.faults.append(Fault("Commit", grpc.StatusCode.UNAVAILABLE, after=True))

    committed = documents.transact(ref, lambda _, __: Write("ours", creates={event: {}}))

    assert committed.answer == "ours"


@pytest.mark.cover(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("code", UNCLEAR, ids=str)
def test_what_became_of_a_put_since_its_lost_answer_stays(
    documents: FirestoreDocuments,
    other: FirestoreDocuments,
    wire: Wire,
    ref: Ref,
    way: str,
    code: grpc.StatusCode,
) -> None:
    """A delivery may be announced before the worker knows that its own commit stands."""
    delivery = Ref("deliveries", f"{ref.id}:1:log")
    fault = Fault("Commit", code, after=True)
    fault.meanwhile = lambda: other.transact(delivery, put({"state": "announced"}))
    wire.faults.append(fault)
    known = documents.get(ref) if way == "version" else None

    committed = documents.transact(
        ref,
        lambda _, __: Write("ours", {"count": 2}, puts={delivery: {"state": "due"}}),
        if_version=known,
        in_transaction=way == "transaction",
    )

    found = documents.get(delivery)
    assert committed.answer == "ours"
    assert found is not None
    assert found.document == {"state": "announced"}


@pytest.mark.cover(1)
@pytest.mark.parametrize("rpc", ["BeginTransaction", "Commit"])
@pytest.mark.parametrize("code", [*UNCLEAR, *NOT_NOW], ids=str)
def test_each_try_is_a_fresh_transaction(
    documents: FirestoreDocuments, wire: Wire, ref: Ref, rpc: str, code: grpc.StatusCode
) -> None:
    """The official client repeats a transaction only where its commit was aborted."""
    wire.faults.append(Fault(rpc, code))

    answer = count_up(documents, ref, "transaction")

    assert answer == 2
    assert wire.calls.count("BeginTransaction") == 2


@pytest.mark.parametrize("code", [*UNCLEAR, *NOT_NOW], ids=str)
def test_a_read_that_gets_no_answer_is_repeated(
    documents: FirestoreDocuments, wire: Wire, ref: Ref, code: grpc.StatusCode
) -> None:
    wire.faults += [Fault("BatchGetDocuments", code)] * 3

    assert count_of(documents, ref) == 1


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT], ids=str
)
def test_what_no_repetition_helps_is_told_at_once(
    documents: FirestoreDocuments, wire: Wire, ref: Ref, code: grpc.StatusCode
) -> None:
    wire.faults.append(Fault("BatchGetDocuments", code))

    with pytest.raises(StoreUnavailableError) as raised:
        documents.get(ref)

    assert "lost on the wire" in str(raised.value)
    assert wire.calls == ["BatchGetDocuments"]


def test_a_query_gives_up_when_its_own_time_is_over(
    documents: FirestoreDocuments, wire: Wire
) -> None:
    """A caller that can do without the answer does not wait for it."""
    wire.faults += [Fault("RunQuery", grpc.StatusCode.UNAVAILABLE)] * 1000

    with pytest.raises(StoreUnavailableError):
        documents.query(Query("overrides", within=0.3))

    assert 1 < len(wire.calls) < 100  # a call without a time of its own would try for 20 s


def test_an_answer_that_ends_before_its_documents_is_asked_for_again(
    documents: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    wire.faults.append(Fault("BatchGetDocuments", grpc.StatusCode.OK))
    wire.faults.append(Fault("RunAggregationQuery", grpc.StatusCode.OK))

    assert documents.get(ref) is not None
    assert documents.count(Query("runs"), 1) == 1
    assert wire.calls == ["BatchGetDocuments"] * 2 + ["RunAggregationQuery"] * 2


def test_what_is_written_between_the_look_and_its_deletion_stays(
    documents: FirestoreDocuments, other: FirestoreDocuments, wire: Wire, ref: Ref
) -> None:
    seen = documents.get(ref)
    written = Fault("Commit", None, meanwhile=lambda: other.transact(ref, one_more))
    wire.faults.append(written)

    with pytest.raises(VersionConflictError):
        documents.delete(ref, if_version=seen)

    assert count_of(documents, ref) == 2


def test_a_store_that_is_away_is_called_again_each_second(
    monkeypatch: pytest.MonkeyPatch, ref: Ref
) -> None:
    """By itself gRPC waits ever longer, up to two minutes, and leases end meanwhile."""
    called: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", f"127.0.0.1:{listener.getsockname()[1]}")
        connection = Connection("p", "(default)", SystemClock(), official_client)

        def hang_up() -> None:
            while len(called) < 7:
                listener.accept()[0].close()
                called.append(time.monotonic())

        def read() -> None:
            if len(called) < 7:
                connection.read([ref], 5)

        callers = threading.Thread(target=hang_up, daemon=True)
        callers.start()
        RetryBudget(SystemClock(), "store", 60).run(read)
        callers.join()
        connection.close()

    assert max(after - before for before, after in pairwise(called)) < 4
