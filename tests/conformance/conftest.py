from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from leasehold.adapters.folder_identity import IDENTITY
from leasehold.domain.stored import Ref
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.documents import Documents
from leasehold.services.engine import Engine
from tests.worlds.catalogs import sample
from tests.worlds.engines import OpenEngine, Runs, engine_on_store, marked
from tests.worlds.stores import ARTIFACTS, DOCUMENTS


@pytest.fixture(scope="module", params=DOCUMENTS)
def kind(request: pytest.FixtureRequest) -> str:
    """The store that is asked to keep its promises."""
    return str(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def documents(kind: str, folder: Path) -> Iterator[Documents]:
    with DOCUMENTS[kind](folder) as documents:
        yield documents


@pytest.fixture(scope="module", params=ARTIFACTS)
def artifacts(request: pytest.FixtureRequest, folder: Path) -> Iterator[Artifacts]:
    with ARTIFACTS[request.param](folder) as artifacts:
        yield artifacts


@pytest.fixture(autouse=True)
def _own_artifacts(request: pytest.FixtureRequest) -> None:
    """Have a test begin artifacts in its own folder, on documents that others know theirs by."""
    if "documents" in request.fixturenames:
        request.getfixturevalue("documents").delete(IDENTITY)


@pytest.fixture
def unique() -> str:
    """A name that no other test has: they share the store, as a cloud project is shared."""
    return f"t-{secrets.token_hex(8)}"


@pytest.fixture
def ref(unique: str) -> Ref:
    return Ref("runs", unique)


@pytest.fixture
def label(unique: str) -> str:
    """A label by which the runs of a test are found."""
    return f"team:{unique}"


@pytest.fixture
def open_engine(documents: Documents, tmp_path: Path) -> Iterator[OpenEngine]:
    """Opens engines on the store, each as another process; all end with the test."""
    with ExitStack() as opened:

        def open_(catalog: Runs, **given: Any) -> Engine:
            return opened.enter_context(engine_on_store(documents, tmp_path, catalog, **given))

        yield open_


@pytest.fixture
def engine(request: pytest.FixtureRequest, open_engine: OpenEngine) -> Engine:
    """An engine on the store; it runs the sample's catalog, where no mark says another."""
    catalog, settings = marked(request, sample)
    return open_engine(catalog, **settings)
