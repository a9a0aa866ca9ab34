from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import testing
from leasehold.testing import FrozenClock, InProcessEngine
from tests.api.waits import approvals


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def engine(tmp_path: Path, clock: FrozenClock) -> Iterator[InProcessEngine]:
    approvals.ASKED.clear()
    with testing.engine(approvals, tmp_path, clock=clock) as engine:
        yield engine
