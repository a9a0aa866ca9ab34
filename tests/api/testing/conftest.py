from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import testing
from leasehold.testing import InProcessEngine
from tests.api.testing import letters
from tests.worlds.engines import marked


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessEngine]:
    catalog, settings = marked(request, letters)
    with testing.engine(catalog, tmp_path, settings=settings) as engine:
        yield engine
