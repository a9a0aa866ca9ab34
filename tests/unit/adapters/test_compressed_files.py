r"""Compressed files of a folder, beyond what the conformance suite asks of any store."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold.adapters import compression
from leasehold.adapters.clock import SystemClock
from leasehold.adapters.folder import FolderArtifacts
from leasehold.errors import ArtifactNameError, ArtifactNotFoundError, StoreUnavailableError

TEXT = b"A line that comes again and again.\n" * 2_000
NAME = "runs/r-1/files/log.txt"


@pytest.fixture
def artifacts(tmp_path: Path) -> FolderArtifacts:
    artifacts = FolderArtifacts(tmp_path, SystemClock())
    artifacts.put(NAME, TEXT)
    return artifacts


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return tmp_path / NAME


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return tmp_path / f"{NAME}\\.gz"


def unfinished(folder: Path) -> list[Path]:
    return [*(folder / ".unfinished").iterdir()]


def test_a_file_whose_address_people_were_given_stays_where_it_is(
    artifacts: FolderArtifacts, plain: Path
) -> None:
    address = artifacts.put("runs/r-1/files/other.txt", TEXT)

    artifacts.compress("runs/r-1/files", ["{}", f'{{"report": "{address}"}}'])

    assert Path(address).read_bytes() == TEXT
    assert not plain.exists()


def test_a_file_takes_less_space_and_gunzip_reads_it(
    artifacts: FolderArtifacts, tmp_path: Path, plain: Path, packed: Path
) -> None:
    artifacts.compress("runs/r-1/files")

    assert not plain.exists()
    assert packed.stat().st_size < len(TEXT) / 10
    assert gzip.decompress(packed.read_bytes()) == TEXT
    assert packed.stat().st_mode & 0o077 == 0
    assert unfinished(tmp_path) == []


@pytest.mark.parametrize("cut_at", [1, 2])
def test_one_that_is_cut_off_anywhere_is_read_as_before_and_repeated(
    artifacts: FolderArtifacts,
    tmp_path: Path,
    packed: Path,
    monkeypatch: pytest.MonkeyPatch,
    cut_at: int,
) -> None:
    """Where both are there, the plain one counts."""
    renames = 0
    rename = os.rename

    def cut_off(*given: object, **named: object) -> None:
        nonlocal renames
        renames += 1
        if renames == cut_at:
            raise KeyboardInterrupt
        rename(*given, **named)  # type: ignore[arg-type] # as it was called

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", cut_off)
        with pytest.raises(KeyboardInterrupt):
            artifacts.compress("runs/r-1")

    assert packed.exists() is (cut_at == 2)
    assert artifacts.get(NAME) == TEXT
    assert artifacts.sizes("") == {NAME: len(TEXT)}
    artifacts.compress("runs/r-1")
    assert (artifacts.get(NAME), unfinished(tmp_path)) == (TEXT, [])
    assert packed.exists()


def test_what_is_put_while_it_is_compressed_wins(
    artifacts: FolderArtifacts, plain: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_meanwhile(*_: object) -> bool:
        artifacts.put(NAME, b"later")
        return True

    monkeypatch.setattr(compression, "gains", put_meanwhile)

    artifacts.compress("runs/r-1")

    assert artifacts.get(NAME) == b"later"
    assert (plain.exists(), packed.exists()) == (True, False)


def test_a_plain_file_beside_an_older_compressed_one_counts(
    artifacts: FolderArtifacts, plain: Path, packed: Path
) -> None:
    """A version that knows nothing of them put it."""
    artifacts.compress("runs/r-1")
    plain.write_bytes(b"by an older version")

    assert artifacts.get(NAME) == b"by an older version"
    assert artifacts.sizes("runs/r-1") == {NAME: 19}
    artifacts.delete(NAME)
    assert (plain.exists(), packed.exists(), artifacts.exists(NAME)) == (False, False, False)


Spoil = Callable[[Path], object]

SPOILED: dict[str, Spoil] = {
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:-30]),
    "no gzip": lambda file: file.write_bytes(b"x" * 1000),
    "empty": lambda file: file.write_bytes(b""),
    "a byte more": lambda file: file.write_bytes(file.read_bytes() + b"x"),
    "a second member": lambda file: file.write_bytes(file.read_bytes() * 2),
    "another size": lambda file: file.write_bytes(file.read_bytes()[:-4] + b"\x01\0\0\0"),
    "a larger size": lambda file: file.write_bytes(file.read_bytes()[:-4] + b"\xff\xff\0\0"),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_damaged_one_is_never_read_as_something_else(
    artifacts: FolderArtifacts, packed: Path, spoil: Spoil
) -> None:
    artifacts.compress("runs/r-1")
    spoil(packed)

    with pytest.raises(StoreUnavailableError, match="damaged"):
        artifacts.get(NAME)
    with pytest.raises(StoreUnavailableError, match="damaged"), artifacts.open(NAME) as content:
        b"".join(content.blocks)


def test_a_small_file_of_a_huge_content_takes_no_memory_for_it(
    artifacts: FolderArtifacts, plain: Path, packed: Path
) -> None:
    plain.unlink()
    bomb = gzip.compress(bytes(64 * 1024 * 1024))
    packed.write_bytes(bomb[:-4] + (1000).to_bytes(4, "little"))

    tracemalloc.start()
    try:
        with pytest.raises(StoreUnavailableError, match="longer than was stored"):
            artifacts.get(NAME)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 8 * 1024 * 1024


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_special_files_are_left_out(
    artifacts: FolderArtifacts, tmp_path: Path, plain: Path, packed: Path, kind: str
) -> None:
    artifacts.compress("runs/r-1")
    outside = packed.rename(tmp_path / "outside.gz")
    if kind == "link":
        packed.symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(packed)
    else:
        packed.mkdir()

    with pytest.raises(ArtifactNotFoundError):
        artifacts.get(NAME)
    assert not artifacts.exists(NAME)
    assert artifacts.list("runs/r-1") == []
    assert not plain.exists()


def test_links_in_a_run_are_not_followed_and_pipes_not_opened(
    artifacts: FolderArtifacts, tmp_path: Path, plain: Path
) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.txt"
    outside.write_bytes(TEXT)
    (plain.parent / "link").symlink_to(outside)
    os.mkfifo(plain.parent / "pipe")

    artifacts.compress("runs/r-1")

    assert outside.read_bytes() == TEXT
    assert (plain.parent / "link").is_symlink()


def test_a_folder_behind_a_link_is_not_compressed(
    artifacts: FolderArtifacts, tmp_path: Path, plain: Path
) -> None:
    plain.parent.rename(tmp_path / "elsewhere")
    plain.parent.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ArtifactNameError):
        artifacts.compress("runs/r-1/files")

    assert (tmp_path / "elsewhere" / "log.txt").read_bytes() == TEXT


def test_one_file_that_cannot_be_compressed_keeps_no_other_from_it(
    artifacts: FolderArtifacts, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts.put("runs/r-1/files/a.txt", TEXT)
    compress_file = compression.compress_file

    def full_disk(root: Path, name: str, unfinished: Path) -> None:
        if name.endswith("a.txt"):
            raise OSError(28, "No space left on device")
        compress_file(root, name, unfinished)

    monkeypatch.setattr("leasehold.adapters.folder.compress_file", full_disk)

    with pytest.raises(StoreUnavailableError, match="No space left"):
        artifacts.compress("runs/r-1")

    assert packed.exists()
    assert artifacts.get("runs/r-1/files/a.txt") == TEXT


def test_a_folder_that_went_away_is_an_outage(artifacts: FolderArtifacts, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("away"))
    try:
        with pytest.raises(StoreUnavailableError, match="gone"):
            artifacts.compress("runs/r-1/files")
    finally:
        tmp_path.with_name("away").rename(tmp_path)


def test_a_large_file_takes_little_memory(artifacts: FolderArtifacts, tmp_path: Path) -> None:
    with (tmp_path / "runs/r-1/files/large").open("wb") as file:
        for _ in range(32):
            file.write(TEXT[:65_536] * 16)
    size = (tmp_path / "runs/r-1/files/large").stat().st_size
    assert size > 32_000_000

    tracemalloc.start()
    try:
        artifacts.compress("runs/r-1")
        with artifacts.open("runs/r-1/files/large") as content:
            assert content.size == sum(map(len, content.blocks)) == size
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 12 * 1024 * 1024


def test_a_folder_in_place_of_a_compressed_file_is_nobodys_business(
    artifacts: FolderArtifacts, plain: Path, packed: Path
) -> None:
    packed.mkdir()

    artifacts.compress("runs/r-1/files")
    artifacts.put(NAME, TEXT + b"more")
    assert (plain.read_bytes(), artifacts.get(NAME)) == (TEXT + b"more", TEXT + b"more")

    artifacts.delete_file(NAME)
    assert not artifacts.exists(NAME)
    artifacts.delete(NAME)
    assert packed.is_dir()
