"""The tests of an integration run in its own environment alone: see `make integrations`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold import testing
from leasehold.integrations.prices import Used, listed_price
from leasehold.ports.documents import Documents
from leasehold.testing import InProcessEngine
from tests.worlds.stores import DOCUMENTS
from tests.worlds.warm_starts import fork_from_here

#: The integration whose environment this is; in another environment, not the name of any.
HERE: Final = Path(sys.prefix).name
_FOLDER: Final = Path(__file__).parent
_INTEGRATIONS: Final = {path.parent for path in _FOLDER.glob("*/requirements.txt")}


def pytest_configure(config: pytest.Config) -> None:
    """Try the newest versions all the same: that they were not tested is known."""
    if "integrations-newest" in sys.prefix:
        warning = "ignore:.* was not tested with Leasehold:UserWarning"
        config.addinivalue_line("filterwarnings", warning)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of libraries that are not installed here, or have no such scenes."""
    if collection_path == _FOLDER / "test_recorded.py":
        return None if (_FOLDER / HERE / "scenes.py").exists() else True
    if HERE in {path.name for path in _INTEGRATIONS}:
        return True if collection_path in _INTEGRATIONS and collection_path.name != HERE else None
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Fork what the tests start from this process: to import the library again takes seconds."""
    option = session.config.option
    if session.items and not (session.testsfailed or option.forks or option.collectonly):
        listed_price(Used("gpt-4o", 1, 1))  # reads the list, as each of them would
        fork_from_here()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[InProcessEngine]:
    """The engine of the scenes of the library."""
    scenes: Any = importlib.import_module(f"tests.integrations.{HERE}.scenes")
    scenes.MADE.clear()
    scenes.DOES.clear()
    with testing.engine(scenes, tmp_path) as engine:
        yield engine


@pytest.fixture(scope="module", params=DOCUMENTS)
def documents(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Documents]:
    """Each store in turn."""
    with DOCUMENTS[request.param](tmp_path_factory.mktemp("store")) as documents:
        yield documents
