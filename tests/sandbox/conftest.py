from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.hostile_imports.place import NOTES, WORKER
from tests.sandbox.hostile_place import HostilePlace


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostilePlace]:
    """A worker of which one fork server serves all tests of a module."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("hostile")
        (folder / "imports").mkdir()
        patch.setenv(NOTES, str(folder / "imports"))
        patch.setenv(WORKER, str(os.getpid()))
        place = HostilePlace(folder)
        yield place
        place.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[HostilePlace]:
    """A worker of the test's own, whose fork server may come to harm."""
    place = HostilePlace(tmp_path)
    yield place
    place.close()
