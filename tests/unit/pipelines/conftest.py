from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.pipelines import spoiled_digests


@pytest.fixture
def two_docs(tmp_path: Path) -> Path:
    """A folder with two documents, each of which states something."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.md").write_text(
            f"# {name}\n\nA worker must renew its lease every 10 seconds, says {name}.\n"
        )
    return folder


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Three documents, each with one claim."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nA worker must renew its lease every 10 seconds.\n")
    (folder / "b.md").write_text("# B\n\nA run is given up after 5 failed attempts at most.\n")
    (folder / "c.md").write_text("# C\n\nEach alarm must be kept in the manifest of its run.\n")
    return folder


@pytest.fixture
def spoiled(environ: dict[str, str]) -> None:
    """Give the engine a catalog whose synthesis spoils its digests as a test says."""
    environ["LEASEHOLD_CATALOG"] = spoiled_digests.__name__
    spoiled_digests.SPOILS.clear()
