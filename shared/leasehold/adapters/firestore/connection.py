"""The connection to Firestore: one RPC a method, each tried once, its errors translated to ours.

The client's own retries are off. Its retry of a commit would meet what the first try stored, and
report a commit that happened as a conflict.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import google.auth.exceptions
import grpc
from google.api_core import exceptions
from google.cloud import firestore
from google.cloud.firestore_v1.services.firestore import FirestoreClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport
from google.cloud.firestore_v1.types import common
from google.cloud.firestore_v1.types import firestore as requests
from google.cloud.firestore_v1.types import write as types

from leasehold.adapters.firestore.retry_budget import AnotherTryError, LostAnswerError, RefusedError
from leasehold.adapters.firestore.values import (
    decode_fields,
    from_version,
    to_datetime,
    to_version,
)
from leasehold.domain.stored import Ref
from leasehold.errors import StoreUnavailableError
from leasehold.frozen import dataclass
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Snapshot

#: A field of every document: the commit that wrote it. It is not part of what callers store.
#: It distinguishes a commit whose answer was lost from another one that wrote the same. And it
#: differs each time, because Firestore keeps the update time of a document that is written
#: unchanged.
COMMIT_FIELD: Final = "_commit"

#: Makes the official client of the low-level API, for a project and a database.
Connect = Callable[[str, str], Any]

_REFUSED: Final = (exceptions.FailedPrecondition, exceptions.AlreadyExists, exceptions.NotFound)
_LOST: Final = (
    exceptions.ServiceUnavailable,
    exceptions.GatewayTimeout,
    exceptions.InternalServerError,
    exceptions.Unknown,
    exceptions.Cancelled,
    exceptions.RetryError,
    google.auth.exceptions.TransportError,
)
_NOT_NOW: Final = (exceptions.Aborted, exceptions.TooManyRequests)


_EMULATOR: Final = "FIRESTORE_EMULATOR_HOST"
#: As other programs of a server, the owner is asked by no rules, and an emulator evaluates none.
_OWNER: Final = ("authorization", "Bearer owner")
#: As the official client has it, but for the wait between two tries to connect, and for the thread
#: that it starts for each read, which costs as much as all the rest of the read.
_CHANNEL: Final = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("SingleThreadedUnaryStream", 1),
)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A document as it was read; `snapshot` and `commit` are None if it does not exist."""

    ref: Ref
    snapshot: Snapshot | None
    commit: str | None
    read_at: datetime


class Connection:
    """A connection that each process opens for itself when it first needs it.

    Args:
        project, database: the store.
        clock: this process's monotonic time, for snapshots.
        connect: makes the client.
    """

    def __init__(self, project: str, database: str, clock: Clock, connect: Connect) -> None:
        self.name = f"projects/{project}/databases/{database}"
        self.documents = f"{self.name}/documents"
        self._headers: list[tuple[str, str]] = []
        self._connect: Callable[[], Any] = lambda: connect(project, database)
        self._clock = clock
        self._api: tuple[int, Any] | None = None
        self._opening = threading.Lock()
        self._closings = 0

    def path(self, ref: Ref) -> str:
        """Return the full name of a document."""
        return f"{self.documents}/{ref}"

    def begin(self, timeout: float) -> bytes:
        """Begin a transaction; one that is never committed ends by itself, and holds nothing."""
        mode = common.TransactionOptions(read_write=common.TransactionOptions.ReadWrite())
        request = requests.BeginTransactionRequest(database=self.name, options=mode)
        with self._translated():
            answer = self._client().begin_transaction(**self._call(request, timeout))
            return bytes(answer.transaction)

    def read(self, refs: Sequence[Ref], timeout: float) -> list[ReadResult]:
        """Read documents at one time, in the order they were asked for; no lock is taken."""
        by_path = {self.path(ref): ref for ref in refs}
        request = requests.BatchGetDocumentsRequest(database=self.name, documents=list(by_path))
        with self._translated():
            answers = self._client().batch_get_documents(**self._call(request, timeout))
            documents = [self._result(answer, by_path) for answer in map(_plain, answers)]
        by_ref = {one.ref: one for one in documents}
        if len(by_ref) < len(by_path):
            raise LostAnswerError("the answer to a read was cut")
        return [by_ref[ref] for ref in refs]

    def commit(
        self, writes: Sequence[Any], timeout: float, transaction: bytes | None = None
    ) -> Any:
        """Write all or nothing; return the time of the commit.

        Raises:
            RefusedError: nothing was written, or by an earlier try of the same.
            LostAnswerError: it was written, or not.
        """
        plain = requests.CommitRequest.pb()(database=self.name, writes=writes)
        if transaction is not None:
            plain.transaction = transaction
        request = requests.CommitRequest.wrap(plain)
        with self._translated(refused=_REFUSED):
            answer = _plain(self._client().commit(**self._call(request, timeout)))
        return answer.commit_time

    def delete(self, refs: Sequence[Ref], timeout: float, version: Any = None) -> None:
        """Delete documents that are there, only at this version where one is given."""
        writes = [types.Write.pb()(delete=self.path(ref)) for ref in refs]
        for write in writes if version is not None else ():
            write.current_document.update_time.CopyFrom(from_version(version))
        self.commit(writes, timeout)

    def query(self, collection: str, structured: Any, timeout: float) -> list[Snapshot]:
        """Run a query on a collection."""
        parent, _, _ = f"{self.documents}/{collection}".rpartition("/")
        plain = requests.RunQueryRequest.pb()(parent=parent, structured_query=structured)
        request = requests.RunQueryRequest.wrap(plain)
        with self._translated():
            answers = self._client().run_query(**self._call(request, timeout))
            return [
                self._snapshot(
                    Ref(collection, _id_of(answer.document)), answer.document, answer.read_time
                )
                for answer in map(_plain, answers)
                if answer.HasField("document")
            ]

    def count(self, collection: str, counted: Any, timeout: float) -> int:
        """Run an aggregation that counts; the service may say first that there is no answer yet."""
        parent, _, _ = f"{self.documents}/{collection}".rpartition("/")
        plain = requests.RunAggregationQueryRequest.pb()(
            parent=parent, structured_aggregation_query=counted
        )
        request = requests.RunAggregationQueryRequest.wrap(plain)
        with self._translated():
            answers = self._client().run_aggregation_query(**self._call(request, timeout))
            values = [  # read to its end: gRPC keeps a stream that was left, 21 KB, for good
                int(value.integer_value)
                for answer in map(_plain, answers)
                for value in answer.result.aggregate_fields.values()
            ]
        if not values:
            raise LostAnswerError("the answer to a count was cut")
        return values[0]

    def close(self) -> None:
        """Close the connection of this process; the next call opens it again.

        A call that is cut off is tried again, as one whose answer was lost; one that comes to a
        closed connection fails as an outage. From the first line on no caller gets the client that
        is closed, and who has it finds that it was closed since.
        """
        api, self._api = self._api, None
        self._closings += 1
        if api is not None and api[0] == os.getpid():
            api[1].transport.close()

    def _result(self, answer: Any, by_path: dict[str, Ref]) -> ReadResult:
        read_at = to_datetime(answer.read_time)
        if answer.WhichOneof("result") == "missing":
            return ReadResult(by_path[answer.missing], None, None, read_at)
        ref = by_path[answer.found.name]
        fields = answer.found.fields
        commit = fields[COMMIT_FIELD].string_value if COMMIT_FIELD in fields else None
        snapshot = self._snapshot(ref, answer.found, answer.read_time)
        return ReadResult(ref, snapshot, commit, read_at)

    def _snapshot(self, ref: Ref, document: Any, read_time: Any) -> Snapshot:
        values = decode_fields(document.fields.items())
        values.pop(COMMIT_FIELD, None)
        version = to_version(document.update_time)
        return Snapshot(ref, values, version, to_datetime(read_time), self._clock.monotonic())

    def _call(self, request: Any, timeout: float) -> dict[str, Any]:
        """Return how an RPC is called: once, and with the headers of the client."""
        return {"request": request, "retry": None, "timeout": timeout, "metadata": self._headers}

    def _client(self) -> Any:
        """Return this process's client: the threads of one do not survive a fork."""
        api = self._api
        if api is None or api[0] != os.getpid():
            with self._opening:
                api = self._api
                if api is None or api[0] != os.getpid():
                    api = self._api = (os.getpid(), self._open())
        return api[1]

    def _open(self) -> Any:
        headers = [("google-cloud-resource-prefix", self.name)]
        self._headers = [*headers, _OWNER] if os.environ.get(_EMULATOR) else headers
        return self._connect()

    @contextlib.contextmanager
    def _translated(self, refused: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Translate Google's errors: those that another try may cure, and those that none will."""
        closings = self._closings
        try:
            yield
        except refused as error:
            raise RefusedError(_words(error)) from error
        except _NOT_NOW as error:
            raise AnotherTryError(_words(error)) from error
        except _LOST as error:
            raise LostAnswerError(_words(error)) from error
        except (exceptions.GoogleAPIError, google.auth.exceptions.GoogleAuthError) as error:
            raise StoreUnavailableError(store=self.name, problem=_words(error)) from error
        except ValueError as error:  # as the library has it, where another thread closed it
            if self._closings == closings:
                raise
            raise StoreUnavailableError(store=self.name, problem="it was closed") from error


def official_client(project: str, database: str) -> Any:
    """Return the official client of the low-level API; it honours FIRESTORE_EMULATOR_HOST.

    Over its own connection: gRPC waits up to two minutes before it tries again to connect,
    which makes of an outage of seconds one that outlasts leases.
    """
    client: Any = firestore.Client(project=project, database=database)
    emulator = os.environ.get(_EMULATOR)
    if emulator:
        channel = grpc.insecure_channel(emulator, _CHANNEL)
    else:
        channel = FirestoreGrpcTransport.create_channel(
            client._target,  # noqa: SLF001 - where that client would connect, and as whom
            credentials=client._credentials,  # noqa: SLF001 - as above
            options=_CHANNEL,
        )
    return FirestoreClient(transport=FirestoreGrpcTransport(channel=channel))


def _plain(message: Any) -> Any:
    """Return the protobuf message within the client's wrapping, which is slow to read."""
    return type(message).pb(message)


def _id_of(document: Any) -> str:
    return str(document.name).rpartition("/")[2]


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500].rstrip(". ")
