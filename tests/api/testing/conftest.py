from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import testing
from leasehold.testing import InProcessEngine
from tests.api.testing import letters


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[InProcessEngine]:
    with testing.engine(letters, tmp_path) as engine:
        yield engine
