"""The tests of an integration run in its own environment alone: see `make integrations`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from leasehold.ports.documents import Documents
from tests.conformance.stores import DOCUMENTS
from tests.worlds.emulators import need_firestore

#: The integration whose environment this is; in another environment, not the name of any.
HERE: Final = Path(sys.prefix).name
_INTEGRATIONS: Final = {path.parent for path in Path(__file__).parent.glob("*/requirements.txt")}


def pytest_configure(config: pytest.Config) -> None:
    """Try the newest versions all the same: that they were not tested is known."""
    if "integrations-newest" in sys.prefix:
        warning = "ignore:.* was not tested with Leasehold:UserWarning"
        config.addinivalue_line("filterwarnings", warning)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests of libraries that are not installed here."""
    if HERE in {path.name for path in _INTEGRATIONS}:
        return True if collection_path in _INTEGRATIONS and collection_path.name != HERE else None
    return True


@pytest.fixture(scope="module", params=DOCUMENTS)
def documents(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Documents]:
    """Each store in turn."""
    if request.param == "firestore":
        need_firestore()
    with DOCUMENTS[request.param](tmp_path_factory.mktemp("store")) as documents:
        yield documents
