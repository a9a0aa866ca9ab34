from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import testing
from leasehold.testing import InProcessEngine
from tests.worlds.catalogs import once as catalog


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    catalog.MADE.clear()
    catalog.DOES.clear()
    yield
    catalog.MADE.clear()
    catalog.DOES.clear()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[InProcessEngine]:
    with testing.engine(catalog, tmp_path) as engine:
        yield engine
