"""A store that does not answer, and what an import costs."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.firestore import FirestoreDocuments
from leasehold.domain.stored import Ref
from leasehold.errors import StoreUnavailableError
from leasehold.ports.documents import Query
from tests.unit.adapters.firestore.wire import Wire
from tests.worlds.ports import own_port
from tests.worlds.stores import one_more

REF = Ref("runs", "r-1")

CALLS: dict[str, Callable[[FirestoreDocuments], object]] = {
    "get": lambda documents: documents.get(REF),
    "query": lambda documents: documents.query(Query("runs/r-1/trace")),
    "count": lambda documents: documents.count(Query("runs/r-1/trace"), 1000),
    "delete": lambda documents: documents.delete(REF),
    "transact": lambda documents: documents.transact(REF, one_more),
    "transact in a transaction": lambda documents: documents.transact(
        REF, one_more, in_transaction=True
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("listens", [False, True], ids=["nobody listens", "nobody answers"])
def test_a_store_that_does_not_answer_is_told_in_time(
    call: Callable[[FirestoreDocuments], object], *, listens: bool
) -> None:
    clock = SystemClock()
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        if listens:
            mute.listen()
        port = mute.getsockname()[1] if listens else own_port()
        wire = Wire(f"127.0.0.1:{port}")
        documents = FirestoreDocuments(
            "p-1", "(default)", clock, deadline_s=0.5, connect=wire.connect
        )
        begun = clock.monotonic()

        with pytest.raises(StoreUnavailableError) as raised:
            call(documents)

        assert clock.monotonic() - begun < 10  # the deadline of a call is 20 where none is given
        assert raised.value.retryable
        assert "projects/p-1/databases/(default)" in str(raised.value)
        documents.close()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_store_that_is_closed_under_a_call_is_an_outage(
    call: Callable[[FirestoreDocuments], object],
) -> None:
    """Of threads that are left at the end, such as one that announces."""
    wire = Wire(f"127.0.0.1:{own_port()}")

    def connect(project: str, database: str) -> Any:
        client = wire.connect(project, database)
        documents.close()
        client.transport.close()  # as `close` does once the call before has the client
        return client

    documents = FirestoreDocuments("p-1", "(default)", SystemClock(), connect=connect)

    with pytest.raises(StoreUnavailableError, match="it was closed"):
        call(documents)


def test_a_call_that_begins_while_the_store_is_closed_is_an_outage_at_worst() -> None:
    """A close waits for the calls that it cuts off: others begin meanwhile."""
    wire = Wire(f"127.0.0.1:{own_port()}")
    told: list[str] = []

    def connect(project: str, database: str) -> Any:
        client = wire.connect(project, database)
        close = client.transport.close

        def close_slowly() -> None:
            close()
            with pytest.raises(StoreUnavailableError) as raised:
                documents.get(REF)
            told.append(str(raised.value))

        client.transport.close = close_slowly if not told else close
        return client

    documents = FirestoreDocuments(
        "p-1", "(default)", SystemClock(), deadline_s=0.2, connect=connect
    )
    with pytest.raises(StoreUnavailableError):
        documents.get(REF)

    documents.close()

    assert len(told) == 1


def test_google_is_imported_when_a_store_is_opened(root: Path) -> None:
    """A function that needs no store starts without its half second."""
    program = (
        "import sys\n"
        "import leasehold.adapters.firestore, leasehold.adapters.cloud_storage\n"
        "costly = ('google.api_core', 'google.auth', 'google.protobuf', 'grpc', 'requests')\n"
        "print([name for name in costly if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
