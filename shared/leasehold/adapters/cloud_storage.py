"""Artifacts in a bucket of Cloud Storage: an object is there whole once its upload is done."""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from leasehold.adapters.compression import (
    compressed,
    decompressed,
    gains,
    looks_compressible,
    may_gain,
)
from leasehold.domain.artifact_name import check_artifact_name, is_artifact_name
from leasehold.errors import ArtifactNotFoundError, StoreUnavailableError
from leasehold.frozen import dataclass
from leasehold.ports.artifacts import ArtifactContent

#: A call gives up after this long, all its tries together.
CALL_DEADLINE_S: Final = 20.0

#: How long to wait for a connection; for each further byte, as long as for the whole call.
_CONNECT_TIMEOUT_S: Final = 5.0

#: An object of any size is read in blocks of so many bytes, a call for each.
_BLOCK_BYTES: Final = 4 * 1024 * 1024

#: An object that is stored as gzip says so by its content encoding, as clients of Cloud Storage
#: expect it, and by how many bytes were put.
_GZIP: Final = "gzip"
_SIZE: Final = "leasehold-size"
_GZIP_BEGINS: Final = b"\x1f\x8b"

#: The response to a write if its object was written or deleted meanwhile.
_CHANGED: Final = (404, 412)


class CloudStorageArtifacts:
    """The artifacts port on a bucket, or on the emulator that STORAGE_EMULATOR_HOST names.

    The library is imported by the first call, and a client made by the first one in each process.
    Each call may be made twice without harm, so the library repeats what does not get through.

    Args:
        bucket: its name.
        prefix: the folder in it that holds all; empty: the bucket itself.
        deadline_s: how long one call may take, all its tries together.
    """

    def __init__(
        self, bucket: str, prefix: str = "", *, deadline_s: float = CALL_DEADLINE_S
    ) -> None:
        self._folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._name = bucket
        self._address = f"gs://{bucket}"
        self._deadline_s = deadline_s
        self._bucket: tuple[int, Any] | None = None
        self._opening = threading.Lock()

    @property
    def _limits(self) -> dict[str, Any]:
        """How long a call waits, and how it is tried again."""
        return {
            "timeout": (min(_CONNECT_TIMEOUT_S, self._deadline_s), self._deadline_s),
            "retry": storage_library().retry.with_timeout(self._deadline_s),
        }

    def put(self, name: str, data: bytes) -> str:
        """Store `data` whole or not at all; return its address."""
        with self._located(name) as blob:
            blob.upload_from_string(data, "application/octet-stream", **self._limits)
        return f"{self._address}/{self._folder}{name}"

    def get(self, name: str) -> bytes:
        """Return what was stored."""
        with self._located(name) as blob:
            try:
                data = bytes(blob.download_as_bytes(raw_download=True, **self._limits))
                if data.startswith(_GZIP_BEGINS):
                    blob.reload(**self._limits)
                    size = _size_before(blob)
                    return data if size is None else b"".join(decompressed([data], size))
            except storage_library().missing:
                self._check_bucket(blob.bucket)
            else:
                return data
        raise ArtifactNotFoundError(name=name, store=self._address)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[ArtifactContent]:
        """Open the object as it is now, to be read in blocks."""
        blob = self._metadata(name)
        size = _size_before(blob)
        if size is None:
            yield ArtifactContent(blob.size, self._blocks(name, blob))
        else:
            yield ArtifactContent(size, self._decompressed(name, blob, size))

    def exists(self, name: str) -> bool:
        """Return whether something has that name."""
        with self._located(name) as blob:
            if blob.exists(**self._limits):
                return True
            self._check_bucket(blob.bucket)
        return False

    def try_out(self) -> None:
        """Look for a file that no run has: the bucket answers."""
        self.exists("runs/ready")

    def delete(self, name: str) -> None:
        """Delete what has that name, and all below it."""
        with self._located(name) as blob:
            below = blob.bucket.list_blobs(prefix=f"{blob.name}/", **self._limits)
            for one in (*below, blob):
                with contextlib.suppress(storage_library().missing):
                    one.delete(**self._limits)

    def delete_file(self, name: str) -> None:
        """Delete what has that name alone: one call, and none that is billed."""
        with self._located(name) as blob, contextlib.suppress(storage_library().missing):
            blob.delete(**self._limits)

    def tidy_up(self) -> None:
        """Do nothing: an upload that is interrupted leaves no object."""

    def compress(self, prefix: str, texts: Sequence[str] = ()) -> None:  # noqa: ARG002 - the port's
        """Compress the objects below the folder `prefix`; of failures, raise the first.

        An object is there whole before and after, under the same address; an object that was put
        meanwhile is not overwritten.
        """
        check_artifact_name(prefix)
        failures: list[StoreUnavailableError] = []
        with self._located(None) as bucket:
            found = [*bucket.list_blobs(prefix=f"{self._folder}{prefix}/", **self._limits)]
        for blob in found:
            name = blob.name.removeprefix(self._folder)
            is_plain = not blob.content_encoding and is_artifact_name(name)
            if is_plain and may_gain(blob.size):
                try:
                    self._compress(name, blob)
                except StoreUnavailableError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    def _compress(self, name: str, found: Any) -> None:
        """Compress one object in blocks, unless it gains too little by that."""
        blocks = self._blocks(name, found)
        first = next(blocks, b"")
        if not looks_compressible(first):
            return
        with self._located(name) as blob:
            blob.content_encoding = _GZIP
            blob.metadata = {**(found.metadata or {}), _SIZE: str(found.size)}
            packed = 0
            upload = blob.open(
                "wb",
                chunk_size=_BLOCK_BYTES,
                content_type=found.content_type,
                if_generation_match=found.generation,
                **self._limits,
            )
            try:
                for part in compressed(itertools.chain([first], blocks)):
                    packed += len(part)
                    upload.write(part)
                if gains(packed, found.size):
                    upload.close()
            except storage_library().failures as error:
                if _status_of(error) not in _CHANGED:
                    raise
            finally:
                _abandon(upload)

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names below the folder `prefix`, sorted."""
        return [*self.sizes(prefix)]

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Return the names below the folder `prefix`, sorted, and their sizes."""
        if prefix:
            check_artifact_name(prefix)
        below = f"{self._folder}{prefix}/" if prefix else self._folder
        with self._located(None) as bucket:
            found = {
                blob.name.removeprefix(self._folder): _size_before(blob) or blob.size
                for blob in bucket.list_blobs(prefix=below, **self._limits)
            }
        return {name: found[name] for name in sorted(found) if is_artifact_name(name)}

    def _metadata(self, name: str) -> Any:
        """Return what the bucket says of the object, or raise what `get` raises."""
        with self._located(name) as blob:
            try:
                blob.reload(**self._limits)
            except storage_library().missing:
                self._check_bucket(blob.bucket)
            else:
                return blob
        raise ArtifactNotFoundError(name=name, store=self._address)

    def _decompressed(self, name: str, found: Any, size: int) -> Iterator[bytes]:
        blocks = decompressed(self._blocks(name, found), size)
        while True:
            with self._located(None):
                block = next(blocks, None)
            if block is None:
                return
            yield block

    def _blocks(self, name: str, found: Any) -> Iterator[bytes]:
        """Yield the object as stored; the last block only if all of them are what was found."""
        checksum = storage_library().checksum()
        for start in range(0, found.size, _BLOCK_BYTES):
            end = min(start + _BLOCK_BYTES, found.size)
            with self._located(name) as blob:
                block = blob.download_as_bytes(
                    start=start,
                    end=end - 1,
                    if_generation_match=found.generation,
                    raw_download=True,
                    checksum=None,  # the server has that of the whole object only
                    **self._limits,
                )
                checksum.update(block)
                is_last = end == found.size
                if is_last and base64.b64encode(checksum.digest()) != found.crc32c.encode():
                    raise OSError("it changed while it was read")
            yield block

    def _check_bucket(self, bucket: Any) -> None:
        """Raise what the library raises if the bucket is missing, and not just an object."""
        list(bucket.list_blobs(max_results=1, **self._limits))

    @contextlib.contextmanager
    def _located(self, name: str | None) -> Iterator[Any]:
        """Yield the object of a name, or the bucket; translate errors to the port's."""
        if name is not None:
            check_artifact_name(name)
        try:
            bucket = self._of_this_process()
            yield bucket if name is None else bucket.blob(f"{self._folder}{name}")
        except storage_library().failures as error:
            problem = f"{type(error).__name__}: {error}"[:500]
            raise StoreUnavailableError(store=self._address, problem=problem) from error

    def _of_this_process(self) -> Any:
        """Return this process's bucket: connections are not shared across a fork."""
        opened = self._bucket
        if opened is None or opened[0] != os.getpid():
            with self._opening:
                opened = self._bucket
                if opened is None or opened[0] != os.getpid():
                    opened = self._bucket = (os.getpid(), storage_library().open_bucket(self._name))
        return opened[1]


def _abandon(upload: Any) -> None:
    """Have an upload that has not ended store nothing.

    Python closes a writer that was left open, and this one then stores what it has got so far,
    in place of the whole object.
    """
    if not upload.closed:
        try:
            upload.terminate()
        except storage_library().failures:
            pass  # Cloud Storage forgets the session after a week
        finally:
            upload._buffer.close()  # noqa: SLF001 - `closed` is this, and nothing public sets it


def _size_before(blob: Any) -> int | None:
    """Return how many bytes were put into an object that was compressed later; None: it was not."""
    size = (blob.metadata or {}).get(_SIZE, "")
    return int(size) if blob.content_encoding == _GZIP and size.isdecimal() else None


def _status_of(error: Exception) -> int | None:
    """Return the HTTP status of an error of the library."""
    response = getattr(error, "response", None)
    status = getattr(error, "code", None) or getattr(response, "status_code", None)
    return int(status) if status is not None else None


# The client library of Cloud Storage, imported by the first call that needs it.


#: Else each client asks for its bucket's metadata, for traces that are not switched on: another
#: thread, another request, and a permission that no function has. Who wants it sets it to false.
_NO_BUCKET_METADATA: Final = "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA"


@dataclass(frozen=True, slots=True)
class StorageLibrary:
    """The used part of it.

    Args:
        open_bucket: makes a client, and returns its bucket of that name; no call is made.
        retry: tries again what may pass, for the given time.
        checksum: makes the checksum of an object that has no bytes yet.
        missing: what is raised where there is no object, or no bucket.
        failures: all that it raises.
    """

    open_bucket: Callable[[str], Any]
    retry: Any
    checksum: Callable[[], Any]
    missing: type[Exception]
    failures: tuple[type[Exception], ...]


@functools.cache
def storage_library() -> StorageLibrary:
    """Import it, which takes a quarter of a second: most functions never touch an artifact."""
    import google.auth.exceptions as auth  # noqa: PLC0415 - as said
    import google_crc32c  # noqa: PLC0415
    import requests  # noqa: PLC0415
    import urllib3  # noqa: PLC0415
    from google.api_core import exceptions  # noqa: PLC0415
    from google.cloud import storage  # noqa: PLC0415
    from google.cloud.storage import exceptions as of_storage  # noqa: PLC0415
    from google.cloud.storage import retry  # noqa: PLC0415

    def open_bucket(name: str) -> Any:
        os.environ.setdefault(_NO_BUCKET_METADATA, "true")
        return storage.Client().bucket(name)

    return StorageLibrary(
        open_bucket=open_bucket,
        retry=retry.DEFAULT_RETRY,
        checksum=google_crc32c.Checksum,
        missing=exceptions.NotFound,
        failures=(
            exceptions.GoogleAPIError,
            auth.GoogleAuthError,
            of_storage.DataCorruption,
            of_storage.InvalidResponse,
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        ),
    )
