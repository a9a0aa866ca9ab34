"""A world of leased runs for the tests of what looks after them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.adapters.in_process_tasks import InProcessTasks
from leasehold.bootstrap import boot
from leasehold.registry.pipelines import Catalog
from leasehold.testing import FrozenClock
from tests.in_process.sample import PIPELINES, STEPS
from tests.unit.worker.leased_world import Network, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = FrozenClock()
    store = Network(tmp_path / "runs.db", clock)
    environ = {"LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts"}
    bundle = boot(
        environ,
        catalog=Catalog(steps=STEPS, pipelines=PIPELINES),
        clock=clock,
        documents=store,
        tasks=InProcessTasks(clock),
    )
    yield World(clock, store, bundle)
    store.may_continue.set()
    bundle.close()
