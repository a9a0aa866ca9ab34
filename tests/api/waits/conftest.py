from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.waits import approvals
from tests.worlds.builders import environ_of


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return environ_of(tmp_path, LEASEHOLD_CATALOG=approvals.__name__)


@pytest.fixture(autouse=True)
def forget() -> None:
    approvals.ASKED.clear()
