"""Artifacts in Cloud Storage, beyond what the conformance suite asks of any store."""

import contextlib
import gc
import gzip
import socket
import threading
import warnings
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from gcp_storage_emulator.handlers import objects
from google.cloud import storage

from leasehold.adapters import cloud_storage
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.cloud_storage import CloudStorageArtifacts
from leasehold.errors import ArtifactNotFoundError, StoreUnavailableError
from tests.worlds.emulators import environment, storage_bucket
from tests.worlds.ports import own_port
from tests.worlds.serving import while_serving


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with storage_bucket() as (address, bucket), environment(STORAGE_EMULATOR_HOST=address):
        yield bucket


def test_bundles_share_a_bucket_under_prefixes_of_their_own(bucket: str) -> None:
    one, other = (CloudStorageArtifacts(bucket, prefix) for prefix in ("a", "/a/b/"))

    address = one.put("runs/r-1/report.md", b"one")
    other.put("runs/r-1/report.md", b"other")

    assert address == f"gs://{bucket}/a/runs/r-1/report.md"
    assert one.get("runs/r-1/report.md") == b"one"
    assert other.get("runs/r-1/report.md") == b"other"
    assert list(other.list("runs")) == ["runs/r-1/report.md"]


def test_without_a_prefix_the_names_begin_at_the_bucket(bucket: str) -> None:
    artifacts = CloudStorageArtifacts(bucket)

    assert artifacts.put("values/a", b"") == f"gs://{bucket}/values/a"
    assert "values/a" in artifacts.list("")


def test_a_large_artifact_is_there_whole(bucket: str) -> None:
    """Over 8 MiB the library uploads in its own session."""
    data = b"0123456789abcdef" * 600_000
    artifacts = CloudStorageArtifacts(bucket)

    artifacts.put("values/large", data)

    assert artifacts.get("values/large") == data


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("call", ["put", "get", "list"])
def test_a_bucket_that_is_not_there_is_a_store_that_is_not_there(call: str) -> None:
    """A value that is missing ends its run for good; a wrong setting must not."""
    arguments = {"put": ("values/a", b""), "get": ("values/a",), "list": ("values",)}[call]
    artifacts = CloudStorageArtifacts("no-such-bucket")

    with pytest.raises(StoreUnavailableError) as raised:
        getattr(artifacts, call)(*arguments)

    assert "gs://no-such-bucket" in str(raised.value)


@pytest.mark.parametrize("call", ["put", "get", "exists", "list"])
def test_an_address_that_does_not_answer_is_told_in_time(call: str) -> None:
    clock = SystemClock()
    arguments = {"put": ("a", b""), "list": ("",)}.get(call, ("a",))
    with environment(STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{own_port()}"):
        artifacts = CloudStorageArtifacts("artifacts", deadline_s=0.5)
        begun = clock.monotonic()

        with pytest.raises(StoreUnavailableError) as raised:
            getattr(artifacts, call)(*arguments)

    assert clock.monotonic() - begun < 5
    assert raised.value.retryable
    assert "gs://artifacts" in str(raised.value)


@pytest.mark.usefixtures("bucket")
def test_in_a_bucket_that_is_not_there_nothing_is_said_not_to_exist() -> None:
    with pytest.raises(StoreUnavailableError):
        CloudStorageArtifacts("no-such-bucket").exists("values/a")


def test_an_outage_of_the_store_passes() -> None:
    """The same client goes on once it is back."""
    port = own_port()
    with environment(STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{port}"):
        artifacts = CloudStorageArtifacts("artifacts", deadline_s=0.5)
        with storage_bucket(port):
            artifacts.put("values/a", b"one")
            artifacts.get("values/a")

        for call in (artifacts.get, artifacts.exists):
            with pytest.raises(StoreUnavailableError):
                call("values/a")

        with storage_bucket(port):  # it keeps nothing: what is not there now is not there
            artifacts.put("values/b", b"two")
            assert artifacts.get("values/b") == b"two"
            with pytest.raises(ArtifactNotFoundError):
                artifacts.get("values/a")


def answer(status: bytes) -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


#: What a server may do with each request, and what it then says.
TROUBLE = {
    "hangs": None,
    "hangs up": b"",
    "no permission": answer(b"403 Forbidden"),
    "too many requests": answer(b"429 Too Many Requests"),
    "server error": answer(b"500 Internal Server Error"),
    "not now": answer(b"503 Service Unavailable"),
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nhalf",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@contextlib.contextmanager
def server(says: bytes | None) -> Iterator[int]:
    """Listen, and give every caller the same answer; None: nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    held.append(connection)
                    connection.recv(65_536)
                    if says is not None:
                        connection.sendall(says)
                        connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()
        thread.join(60)


@pytest.fixture
def untidy() -> Iterator[None]:
    """Let the library leave to the collector what it could not close."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.mark.usefixtures("untidy")
@pytest.mark.parametrize("call", ["put", "get", "exists", "list"])
@pytest.mark.parametrize("trouble", TROUBLE)
def test_whatever_a_server_does_is_an_outage_and_told_in_time(trouble: str, call: str) -> None:
    clock = SystemClock()
    arguments = {"put": ("a", b""), "list": ("",)}.get(call, ("a",))
    with (
        server(TROUBLE[trouble]) as port,
        environment(STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{port}"),
    ):
        artifacts = CloudStorageArtifacts("artifacts", deadline_s=0.3)
        begun = clock.monotonic()

        with pytest.raises(StoreUnavailableError):
            getattr(artifacts, call)(*arguments)

    assert clock.monotonic() - begun < 5


def test_a_compressed_object_is_gzip_as_other_clients_expect_it(bucket: str) -> None:
    artifacts = CloudStorageArtifacts(bucket)
    text = b"A line that comes again and again.\n" * 20_000
    artifacts.put("runs/r-9/files/log.txt", text)

    artifacts.compress("runs/r-9/files")

    found = storage.Client().bucket(bucket).get_blob("runs/r-9/files/log.txt")
    assert found is not None
    assert (found.content_encoding, found.metadata) == (
        "gzip",
        {"leasehold-size": str(len(text))},
    )
    assert found.size < len(text) / 10
    assert gzip.decompress(found.download_as_bytes(raw_download=True)) == text


def test_an_object_that_is_put_while_it_is_compressed_is_not_overwritten(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator knows no preconditions: this one refuses a write as Cloud Storage does."""
    artifacts = CloudStorageArtifacts(bucket)
    artifacts.put("runs/r-8/files/log.txt", b"A line.\n" * 20_000)
    begins = "_create_resumable_upload"
    begin_upload = getattr(objects, begins)
    asked: list[str] = []

    def begin_late(request: Any, response: Any, store: Any) -> Any:
        found = store.get_file_obj(bucket, "runs/r-8/files/log.txt")
        found["generation"] += "1"  # somebody put it meanwhile
        (wanted,) = request.query["ifGenerationMatch"]
        asked.append(wanted)
        if wanted == found["generation"]:
            return begin_upload(request, response, store)
        response.status = HTTPStatus.PRECONDITION_FAILED
        return None

    monkeypatch.setattr(objects, begins, begin_late)

    artifacts.compress("runs/r-8/files")

    found = storage.Client().bucket(bucket).get_blob("runs/r-8/files/log.txt")
    assert found is not None
    assert (len(set(asked)), found.content_encoding) == (1, None)  # a client may ask twice


def test_an_object_stays_whole_where_it_cannot_be_read_to_its_end(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload that is only forgotten ends by itself: it would store what it has got so far."""
    monkeypatch.setattr(cloud_storage, "_BLOCK_BYTES", 2**18)
    artifacts = CloudStorageArtifacts(bucket)
    text = b"A line that comes again and again.\n" * 20_000
    artifacts.put("runs/r-7/files/log.txt", text)
    download, reads = storage.Blob.download_as_bytes, iter([True, True])

    def cut_off(blob: storage.Blob, **options: Any) -> bytes:
        if next(reads, None):
            return download(blob, **options)
        raise ConnectionError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(storage.Blob, "download_as_bytes", cut_off)
        with pytest.raises(StoreUnavailableError):
            artifacts.compress("runs/r-7/files")
    gc.collect()

    found = storage.Client().bucket(bucket).get_blob("runs/r-7/files/log.txt")
    assert found is not None
    assert (found.size, found.content_encoding) == (len(text), None)
    assert artifacts.get("runs/r-7/files/log.txt") == text


def test_what_cannot_be_compressed_now_is_an_outage() -> None:
    with environment(STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{own_port()}"):
        artifacts = CloudStorageArtifacts("artifacts", deadline_s=0.5)

        with pytest.raises(StoreUnavailableError):
            artifacts.compress("runs/r-1/files")


def test_no_call_asks_about_its_bucket_in_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The library would, once for each client, for traces; no function has the permission."""
    monkeypatch.delenv("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA")
    with recorder() as (address, calls), environment(STORAGE_EMULATOR_HOST=address):
        CloudStorageArtifacts("artifacts").delete_file("values/a")
        late = [it.name for it in threading.enumerate() if "_fetch_background" in it.name]

    assert calls == ["DELETE /storage/v1/b/artifacts/o/values%2Fa"]
    assert late == []


@contextlib.contextmanager
def recorder() -> Iterator[tuple[str, list[str]]]:
    """A server that takes every call; its address, and what was called."""
    calls: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            calls.append(f"{self.command} {self.path.partition('?')[0]}")
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()

        def do_GET(self) -> None:
            self.do_DELETE()

        def log_message(self, *args: Any) -> None:
            """It is not read."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with while_serving(server):
        yield f"http://127.0.0.1:{server.server_port}", calls
