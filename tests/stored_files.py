"""What runs have stored in a folder of artifacts, as it lies there."""

from __future__ import annotations

from pathlib import Path

from leasehold.domain.artifact_name import MARK


def stored_files(artifacts: Path) -> list[Path]:
    """Return all files in the folder, sorted; the mark by which its store knows it is none."""
    files = (path for path in artifacts.rglob("*") if path.is_file())
    return sorted(path for path in files if not path.name.startswith(MARK))
