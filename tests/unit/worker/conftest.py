"""A world of leased runs for the tests of what looks after them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold.registry.pipelines import Catalog
from tests.unit.worker.leased_world import World, world_of
from tests.worlds.catalogs.sample import PIPELINES, STEPS


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with world_of(tmp_path, Catalog(steps=STEPS, pipelines=PIPELINES)) as made:
        yield made
