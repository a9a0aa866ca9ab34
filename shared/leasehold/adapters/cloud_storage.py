"""Artifacts in a bucket of Cloud Storage: an object is there whole once its upload is done."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from leasehold.domain.artifact_name import check_artifact_name
from leasehold.errors import ArtifactNotFoundError, StoreUnavailableError

#: A call gives up after this long, all its tries together.
DEADLINE_S: Final = 20.0

#: How long to wait for a connection; for each further byte, as long as for the whole call.
_CONNECT_S: Final = 5.0


class CloudStorageArtifacts:
    """The artifacts port on a bucket, or on the emulator that STORAGE_EMULATOR_HOST names.

    The library is imported here, and the client made by the first call in each process. Each call
    may be made twice without harm, so the library repeats what does not get through.

    Args:
        bucket: its name.
        prefix: the folder in it that holds all; empty: the bucket itself.
        deadline_s: how long one call may take, all its tries together.
    """

    def __init__(self, bucket: str, prefix: str = "", *, deadline_s: float = DEADLINE_S) -> None:
        import google.auth.exceptions as auth  # noqa: PLC0415 - half a second of a cold start
        import requests  # noqa: PLC0415 - as above
        import urllib3  # noqa: PLC0415 - as above
        from google.api_core import exceptions  # noqa: PLC0415 - as above
        from google.cloud import storage  # noqa: PLC0415 - as above
        from google.cloud.storage import exceptions as of_storage  # noqa: PLC0415 - as above
        from google.cloud.storage import retry  # noqa: PLC0415 - as above

        self._folder = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._address = f"gs://{bucket}"
        self._open: Callable[[], Any] = lambda: storage.Client().bucket(bucket)
        self._limits = {
            "timeout": (min(_CONNECT_S, deadline_s), deadline_s),
            "retry": retry.DEFAULT_RETRY.with_timeout(deadline_s),
        }
        self._missing = exceptions.NotFound
        self._failures = (
            exceptions.GoogleAPIError,
            auth.GoogleAuthError,
            of_storage.DataCorruption,
            of_storage.InvalidResponse,
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        )
        self._bucket: tuple[int, Any] | None = None
        self._opening = threading.Lock()

    def put(self, name: str, data: bytes) -> str:
        """Store `data` whole or not at all; return its address."""
        with self._located(name) as blob:
            blob.upload_from_string(data, "application/octet-stream", **self._limits)
        return f"{self._address}/{self._folder}{name}"

    def get(self, name: str) -> bytes:
        """Return what was stored."""
        with self._located(name) as blob:
            try:
                return bytes(blob.download_as_bytes(**self._limits))
            except self._missing:
                self._check_bucket(blob.bucket)
        raise ArtifactNotFoundError(name=name, store=self._address)

    def exists(self, name: str) -> bool:
        """Return whether something has that name."""
        with self._located(name) as blob:
            if blob.exists(**self._limits):
                return True
            self._check_bucket(blob.bucket)
        return False

    def delete(self, name: str) -> None:
        """Delete what has that name, and all below it."""
        with self._located(name) as blob:
            below = blob.bucket.list_blobs(prefix=f"{blob.name}/", **self._limits)
            for one in (*below, blob):
                with contextlib.suppress(self._missing):
                    one.delete(**self._limits)
            self._check_bucket(blob.bucket)

    def list(self, prefix: str) -> Sequence[str]:
        """Return the names below the folder `prefix`, sorted."""
        if prefix:
            check_artifact_name(prefix)
        below = f"{self._folder}{prefix}/" if prefix else self._folder
        with self._located(None) as bucket:
            names = [blob.name for blob in bucket.list_blobs(prefix=below, **self._limits)]
        return sorted(name.removeprefix(self._folder) for name in names)

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
        except self._failures as error:
            problem = f"{type(error).__name__}: {error}"[:500]
            raise StoreUnavailableError(store=self._address, problem=problem) from error

    def _of_this_process(self) -> Any:
        """Return this process's bucket: connections are not shared across a fork."""
        opened = self._bucket
        if opened is None or opened[0] != os.getpid():
            with self._opening:
                opened = self._bucket
                if opened is None or opened[0] != os.getpid():
                    opened = self._bucket = (os.getpid(), self._open())
        return opened[1]
