"""Temporary files of a step: whatever is not what was stored is refused, and takes no memory."""

from __future__ import annotations

import gzip
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.folder import FolderArtifacts
from leasehold.attempt import values
from leasehold.bounded_calls import BoundedCalls, side_by_side
from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.json_text import MAX_OUTPUT_BYTES
from leasehold.errors import ArtifactNotFoundError, DamagedFileError, StoreUnavailableError
from leasehold.ports.clock import Threads
from tests.worlds.builders import new_run, rules_of, step_settings

RUN = lifecycle.start(
    None,
    datetime(2026, 1, 1, tzinfo=UTC),
    rules=rules_of(step_settings("draft"), step_settings("send")),
    new=new_run(),
).manifest
TEXT = '{"läuft": [1, 2, 3]}'


@pytest.fixture
def artifacts(tmp_path: Path) -> FolderArtifacts:
    return FolderArtifacts(tmp_path / "artifacts", SystemClock())


@pytest.fixture
def kept(artifacts: FolderArtifacts) -> KeptValue:
    return values.put_packed(artifacts, values.pack(RUN, "id-1", TEXT))


def name_of(kept: KeptValue) -> str:
    assert kept.ref is not None
    return kept.ref


def test_what_was_stored_is_read_back(artifacts: FolderArtifacts, kept: KeptValue) -> None:
    assert values.load(artifacts, kept) == TEXT
    assert gzip.decompress(artifacts.get(name_of(kept))).decode() == TEXT


@pytest.mark.parametrize(
    "spoiled",
    [
        b"",
        b"not gzip",
        gzip.compress(b'{"another": "text"}'),
        gzip.compress(b"\xff\xfe"),
        gzip.compress(TEXT.encode())[:-3],
        gzip.compress(TEXT.encode()) + b"and more",
        gzip.compress(bytes(4 * MAX_OUTPUT_BYTES)),
        bytes(2 * MAX_OUTPUT_BYTES),
    ],
    ids=["empty", "no gzip", "foreign", "no text", "cut off", "longer", "a bomb", "huge"],
)
def test_what_is_not_what_was_stored_is_refused(
    artifacts: FolderArtifacts, kept: KeptValue, spoiled: bytes
) -> None:
    artifacts.put(name_of(kept), spoiled)

    with pytest.raises(DamagedFileError, match="is not what was stored"):
        values.load(artifacts, kept)


def test_a_file_that_is_gone_is_no_outage_while_its_run_has_others(
    artifacts: FolderArtifacts, kept: KeptValue, tmp_path: Path
) -> None:
    """It was deleted, or its whole folder; an artifact folder that is away has nothing."""
    artifacts.put("runs/r-1/files/report", b"")
    artifacts.delete(name_of(kept).rpartition("/")[0])

    with pytest.raises(ArtifactNotFoundError):
        values.load(artifacts, kept)

    artifacts.delete("runs/r-1")
    with pytest.raises(StoreUnavailableError, match="once held"):
        values.load(artifacts, kept)


def test_what_cannot_be_deleted_is_left(artifacts: FolderArtifacts, kept: KeptValue) -> None:
    threads = Threads(side_by_side, BoundedCalls("errand").run, time.sleep)

    values.discard(artifacts, name_of(kept), threads)
    values.discard(artifacts, name_of(kept), threads)

    with pytest.raises(ArtifactNotFoundError):
        artifacts.get(name_of(kept))
