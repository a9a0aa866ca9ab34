"""A call that was paid for is not paid for again, wherever its handler's process is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leasehold.domain.checkpoint import CallCount
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.waiting import until

pytestmark = [pytest.mark.one_store, pytest.mark.catalog("tests.worlds.catalogs.once")]


@pytest.mark.sandboxed
def test_six_paid_calls_are_paid_once_more_only_where_a_kill_came_before_the_record(
    engine: Engine, tmp_path: Path
) -> None:
    """Each call meets two kills: one before its result is recorded, and one right after that."""
    request = StartRequest("killed", {"folder": str(tmp_path)})
    run_id = start_run(engine, request).manifest.run_id

    def ended() -> bool:
        run = get_run(engine, run_id)
        execute_step(engine, Hint(run_id, run.position.dispatch.generation))
        return get_run(engine, run_id).is_terminal

    until(ended, 120)

    run = get_run(engine, run_id)
    step = run.steps["kill_often"]
    paid = (tmp_path / "paid").read_text().split()
    kills = (tmp_path / "kills").read_text().splitlines()
    assert run.status == "COMPLETED"
    assert json.loads(step.output or "") == ["0", "1", "4", "9", "16", "25"]
    assert (len(kills), step.attempts.failed) == (12, 12)
    assert len(paid) == 6 + 6  # kills whose record was not written
    assert paid == [str(number) for number in range(6) for _ in range(2)]
    assert step.calls == CallCount(made=6, spared=36)
