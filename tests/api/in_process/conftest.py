from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leasehold.testing import InProcessEngine
from tests.worlds.builders import environ_of
from tests.worlds.catalogs import sample
from tests.worlds.catalogs.sample import ENTERED, GO_ON, PIPELINES, STEPS


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return environ_of(tmp_path, LEASEHOLD_CATALOG=sample.__name__, PIPELINE_MIN_BACKOFF_S="10")


@pytest.fixture
def threaded(environ: dict[str, str]) -> Callable[..., InProcessEngine]:
    """Makes engines with threads and the machine's clock; the test closes them."""

    def make(workers: int = 4, **settings: str) -> InProcessEngine:
        return InProcessEngine(
            STEPS,
            PIPELINES,
            environ=environ | {"PIPELINE_MIN_BACKOFF_S": "0.05"} | settings,
            workers=workers,
        )

    return make


@pytest.fixture
def holding(request: pytest.FixtureRequest) -> Callable[[InProcessEngine], Any]:
    """Starts the run of a test, whose first step waits; returns it once that is entered."""
    key = request.node.name

    def start(engine: InProcessEngine, pipeline: str = "holds") -> Any:
        run_id = f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        ENTERED[run_id], GO_ON[run_id] = threading.Event(), threading.Event()
        run = engine.start(pipeline, {"n": 1}, idempotency_key=key)
        assert run.run_id == run_id
        assert ENTERED[run_id].wait(60)
        return run

    return start
