"""What a recorded result costs: one write, and nothing where it is spared."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.lease_meter import MeteredSqlite
from leasehold.attempt.calls import AttemptCalls
from leasehold.bootstrap import boot
from leasehold.domain.checkpoint import CallCount
from leasehold.registry.pipelines import Catalog
from leasehold.services.execute_step import Hint, arrive
from leasehold.services.start_run import StartRequest, start_run
from leasehold.worker.context.step_context import StepContext
from tests.worlds.catalogs.once import GATES, LARGE, PIPELINES, STEPS, pay


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_call_costs_one_write_and_no_read_and_a_spared_one_nothing(
    tmp_path: Path, size: int
) -> None:
    documents = MeteredSqlite(tmp_path / "runs.db")
    settings = {"LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts"}
    bundle = boot(settings, catalog=Catalog(STEPS, PIPELINES, GATES), documents=documents)
    engine = bundle.engine
    run_id = start_run(engine, StartRequest("asks", {})).manifest.run_id
    held = engine.leases.attempt_of(engine, arrive(engine, Hint(run_id, 1)))
    ctx = StepContext(AttemptCalls(held))
    documents.taken()

    made = [ctx.once(f"call {number}", pay, "x", size) for number in range(5)]
    cost_of_made = documents.taken()
    spared = [ctx.once(f"call {number}", pay, "x", size) for number in range(5)]
    cost_of_spared = documents.taken()
    bundle.close()

    assert spared == made
    assert (cost_of_made, cost_of_spared) == ({"writes": 5}, {})
    assert held.notes.calls == CallCount(made=5, spared=5)
