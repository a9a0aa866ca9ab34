from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.sqlite import SqliteDocuments


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A place for a database."""
    return tmp_path / "runs.db"


@pytest.fixture
def documents(path: Path) -> Iterator[SqliteDocuments]:
    documents = SqliteDocuments(path, SystemClock())
    yield documents
    documents.close()
