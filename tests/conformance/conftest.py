from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.adapters.folder_identity import IDENTITY
from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.bootstrap import load_catalog
from leasehold.domain.stored import Ref
from leasehold.ports.artifacts import Artifacts
from leasehold.ports.documents import Documents
from leasehold.services.engine import Engine
from tests.conformance.stores import ARTIFACTS, DOCUMENTS
from tests.worlds.builders import environ_of
from tests.worlds.emulators import need_firestore
from tests.worlds.engines import engine_on_store


@pytest.fixture(scope="module", params=DOCUMENTS)
def kind(request: pytest.FixtureRequest) -> str:
    """The store that is asked to keep its promises."""
    return str(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def documents(kind: str, folder: Path) -> Iterator[Documents]:
    if kind == "firestore":
        need_firestore()
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
def engine(documents: Documents, tmp_path: Path) -> Iterator[Engine]:
    """Work on the store with the sample catalog; deliveries stay as a test wrote them."""
    with engine_on_store(
        environ_of(tmp_path),
        catalog=load_catalog("tests.api.in_process.sample"),
        documents=documents,
        tasks=InProcessTasks(SystemClock()),
        announces_by_hand=True,
    ) as engine:
        yield engine
