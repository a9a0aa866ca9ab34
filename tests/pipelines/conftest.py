from __future__ import annotations

from pathlib import Path

import pytest


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
