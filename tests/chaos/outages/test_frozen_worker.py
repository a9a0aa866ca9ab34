"""A worker that was frozen, and goes on when its lease is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leasehold.services.execute_step import Hint, execute_step
from leasehold.testing import FrozenClock, InProcessEngine
from tests.chaos.outages import catalog
from tests.chaos.outages.catalog import CALLS, LARGE
from tests.chaos.outages.conftest import Meddling, Store

pytestmark = pytest.mark.catalog(catalog, PIPELINE_LEASE_TTL_S="30", PIPELINE_HEARTBEAT_S="10")


@pytest.mark.parametrize(("seconds", "begins"), [(24, 1), (26, 0), (31, 0), (3600, 0)])
def test_a_handler_does_not_begin_when_its_lease_may_be_over(
    engine: InProcessEngine, clock: FrozenClock, store: Store, seconds: float, begins: int
) -> None:
    """All threads of the process go on at once: no stop was requested by then."""
    run = engine.start("makes", {"text": LARGE})
    frozen = Meddling(store.root, lambda: clock.advance(seconds))
    hint = Hint(run.run_id, run.position.dispatch.generation)

    execute_step(replace(engine.engine, artifacts=frozen), hint)

    assert CALLS[run.run_id, "make"] == begins
