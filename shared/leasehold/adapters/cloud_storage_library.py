"""The client library of Cloud Storage, imported by the first call that needs it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

#: Else each client asks for its bucket's metadata, for traces that no one has switched on: another
#: thread, another request, and a permission that no function has. Who wants it sets it to false.
_NO_BUCKET_METADATA: Final = "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA"


@dataclass(frozen=True, slots=True)
class StorageLibrary:
    """What is used of it.

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
