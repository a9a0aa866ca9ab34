from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold import Client, Manifest, Summary
from leasehold.bootstrap import boot
from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.runs_api import runs_api

CATALOG = "tests.worlds.catalogs.client"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return environ_of(tmp_path, LEASEHOLD_CATALOG=CATALOG)


@pytest.fixture
def engine(environ: dict[str, str]) -> Iterator[InProcessEngine]:
    """Runs in the store what it adopts, and nothing else: a run waits until it may go on."""
    with InProcessEngine(environ=environ, workers=2, report=lambda _: None) as engine:
        yield engine


@pytest.fixture
def url(environ: dict[str, str]) -> Iterator[str]:
    """A server that runs nothing itself."""
    bundle = boot(environ)
    with runs_api(bundle.engine) as url:
        yield url
    bundle.close()


@pytest.fixture
def working_url(engine: InProcessEngine) -> Iterator[str]:
    """A server that runs what is started with it."""
    with runs_api(engine.engine) as url:
        yield url


@pytest.fixture(params=["server", "store"])
def client(request: pytest.FixtureRequest, environ: dict[str, str]) -> Iterator[Client]:
    """One client over each way; it must not matter which."""
    address = request.getfixturevalue("url") if request.param == "server" else None
    with Client(address, environ=environ, actor="ada") as client:
        yield client


class Asking:
    """Starts runs with a client, and has the engine take them up."""

    def __init__(self, client: Client, engine: InProcessEngine) -> None:
        self._client = client
        self._engine = engine

    def start(self, pipeline: str = "answers", given: Any = None, **how: Any) -> Summary:
        run = self._client.start(pipeline, given or {"theText": "why?"}, **how)
        self._engine.adopt(run.run_id)
        return run

    def end(self, pipeline: str = "answers", given: Any = None, **how: Any) -> Manifest:
        return self._client.wait(self.start(pipeline, given, **how), 30)


@pytest.fixture
def asking(client: Client, engine: InProcessEngine) -> Asking:
    return Asking(client, engine)
