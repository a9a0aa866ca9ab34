from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from leasehold.adapters.folder import FolderArtifacts
from leasehold.domain import lifecycle
from leasehold.domain.change import on_run
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.testing import FrozenClock, InProcessEngine
from tests.chaos.outages.catalog import CALLS, DOES, ENTERED, GATES, GO_ON, PIPELINES, STEPS
from tests.worlds.builders import environ_of

Make = Callable[..., InProcessEngine]


class Store:
    """The folder of the artifacts, which can be taken away and brought back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._away = root.with_name("away")
        self._has_gone = False

    def goes(self) -> None:
        """Take the folder away; an empty one gets something first."""
        (self.root / ".unfinished").mkdir(parents=True, exist_ok=True)
        self.root.rename(self._away)

    def goes_once(self) -> None:
        """Take it away as a handler does: the first attempt, and no other that a test outruns."""
        if not self._has_gone:
            self._has_gone = True
            self.goes()

    def comes_back(self) -> None:
        assert not self.root.exists(), "somebody made it anew"
        self._away.rename(self.root)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "artifacts" / ".unfinished").mkdir(parents=True)
    return Store(tmp_path / "artifacts")


@pytest.fixture
def environ(tmp_path: Path, store: Store) -> dict[str, str]:
    """The settings of an engine whose artifacts are in the store; leases and waits are short."""
    return environ_of(
        tmp_path,
        LEASEHOLD_CATALOG="tests.chaos.outages.catalog",
        PIPELINE_LEASE_TTL_S="0.5",
        PIPELINE_HEARTBEAT_S="0.1",
        PIPELINE_MIN_BACKOFF_S="0.05",
        PIPELINE_MAX_BACKOFF_S="0.2",
    )


@pytest.fixture
def make(environ: dict[str, str]) -> Iterator[Make]:
    """Makes engines with threads and the machine's clock; the test closes them.

    They are closed once more when their handlers may end: what a handler works with stays open
    while one is left behind.
    """
    made: list[InProcessEngine] = []

    def make(workers: int = 2, **settings: str) -> InProcessEngine:
        given = environ | settings
        made.append(InProcessEngine(STEPS, PIPELINES, GATES, environ=given, workers=workers))
        return made[-1]

    yield make
    for event in GO_ON.values():
        event.set()
    for engine in made:
        engine.close()


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    for event in GO_ON.values():
        event.set()
    for known in (CALLS, DOES, ENTERED, GO_ON):
        known.clear()


def deferrals(engine: InProcessEngine, run: Manifest) -> int:
    return engine.show(run.run_id).position.attempts.deferred


def reasons(engine: InProcessEngine, run: Manifest) -> list[str | None]:
    return [event.reason for event in engine.trace(run.run_id) if event.type == "step_terminated"]


def cancel(engine: InProcessEngine, run_id: str) -> None:
    end = partial(lifecycle.cancel, rules=engine.engine.rules, actor="ann", reason="enough")
    engine.engine.documents.transact(run_ref(run_id), on_run(run_id, end))


class Meddling(FolderArtifacts):
    """A store whose first answer takes so long that something else happens meanwhile."""

    def __init__(self, root: Path, meanwhile: Callable[[], object]) -> None:
        super().__init__(root, FrozenClock())
        self._meanwhile = [meanwhile]

    def get(self, name: str) -> bytes:
        data = super().get(name)
        self._meddle()
        return data

    def put(self, name: str, data: bytes) -> str:
        self._meddle()
        return super().put(name, data)

    def _meddle(self) -> None:
        if self._meanwhile:
            self._meanwhile.pop()()
