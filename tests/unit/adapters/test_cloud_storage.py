"""Artifacts in Cloud Storage, beyond what the conformance suite asks of any store."""

from collections.abc import Iterator

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.cloud_storage import CloudStorageArtifacts
from leasehold.errors import StoreUnavailableError
from tests.emulators import environment, free_port, storage_bucket


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
    """Over 8 MiB the library uploads in a session of its own."""
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
    with environment(STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{free_port()}"):
        artifacts = CloudStorageArtifacts("artifacts", deadline_s=0.5)
        begun = clock.monotonic()

        with pytest.raises(StoreUnavailableError) as raised:
            getattr(artifacts, call)(*arguments)

    assert clock.monotonic() - begun < 5
    assert raised.value.retryable
    assert "gs://artifacts" in str(raised.value)
