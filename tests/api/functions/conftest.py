from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.testing import InProcessEngine
from tests.worlds.functions import Function, function_of, one_store


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return one_store(
        tmp_path,
        monkeypatch,
        LEASEHOLD_CATALOG="tests.worlds.catalogs.sample",
        PIPELINE_LEASE_TTL_S="30",
        PIPELINE_HEARTBEAT_S="0.1",
    )


@pytest.fixture
def engine(environ: dict[str, str]) -> Iterator[InProcessEngine]:
    """Sees the store from outside, and starts what the functions run: the same catalog."""
    with InProcessEngine(environ=environ, workers=0) as engine:
        yield engine


@pytest.fixture
def execute_step(environ: dict[str, str]) -> Iterator[Function]:
    yield from function_of("execute_step")


@pytest.fixture
def serve_api(environ: dict[str, str]) -> Iterator[Function]:
    yield from function_of("serve_api")


@pytest.fixture
def manage_lease(environ: dict[str, str]) -> Iterator[Function]:
    yield from function_of("manage_lease")


@pytest.fixture
def sweep_dead_letters(environ: dict[str, str]) -> Iterator[Function]:
    yield from function_of("sweep_dead_letters")


@pytest.fixture
def derive_budgets(environ: dict[str, str]) -> Iterator[Function]:
    yield from function_of("derive_budgets")


@pytest.fixture
def deliver_notification(announcing: dict[str, str]) -> Iterator[Function]:
    yield from function_of("deliver_notification")


@pytest.fixture
def announcing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As `environ`, with a channel; the bus is a server that is not there."""
    return one_store(
        tmp_path,
        monkeypatch,
        LEASEHOLD_CATALOG="tests.api.functions.announcing",
        LEASEHOLD_EVENTS="http://127.0.0.1:9",
    )
