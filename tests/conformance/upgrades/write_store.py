"""Writes a store with a run in every state.

`python -m tests.conformance.upgrades.write_store VERSION` does.

It is called once for each release, by the code of that release; what it wrote then is kept, and
every later version has to take it further.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold.domain.lease import fence_of
from leasehold.domain.lifecycle import Operation
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, save_checkpoint
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, arrive
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.overrides import OverrideRequest, set_override
from leasehold.services.start_run import StartRequest, start_run
from leasehold.testing import FrozenClock
from tests.conformance.upgrades.opened import attempt, opened

HERE = Path(__file__).parent


def write(folder: Path) -> None:
    """Write the store and its artifacts into a folder that is empty."""
    with opened(folder, FrozenClock()) as engine:
        _write_runs(engine)
        until = engine.clock.now() + timedelta(days=7)
        set_override(
            engine,
            OverrideRequest(
                step_type="work",
                timeout_s=90.0,
                deadline_s=None,
                until=until,
                why="slow provider",
                actor="ada",
            ),
        )


def _write_runs(engine: Engine) -> None:
    _start(engine, "pending")
    _start(engine, "handed-off", attempts=1)
    _start(engine, "failed", attempts=2, work="fails")
    _start(engine, "given-up", attempts=2, work="gives up")
    _start(engine, "blocked", attempts=2, gate="refuses")
    _start(engine, "completed", attempts=2, file=True)
    _start(engine, "large", attempts=1, text="x" * 40_000)
    _start(engine, "tried", attempts=2, pipeline="tried")
    _start(engine, "waits-for-worker", pipeline="far")

    held = _start(engine, "held", attempts=1)
    arrive(engine, Hint(held, 2))  # its worker is gone
    _operate(engine, _start(engine, "paused", attempts=1), Operation.PAUSE)
    _operate(engine, _start(engine, "cancelled"), Operation.CANCEL)

    far = _start(engine, "has-worker", pipeline="far")
    fence = fence_of(acquire_run(engine, far, "gpu-1").manifest)
    assert fence is not None
    save_checkpoint(
        engine,
        LeaseCredentials(far, fence),
        iteration_count=7,
        phase="reading",
        partial_results='{"page": 7}',
    )


def _start(
    engine: Engine, name: str, *, attempts: int = 0, pipeline: str = "paid", **given: Any
) -> str:
    """Start a run with a name as its label, make so many attempts, and return its id."""
    run = start_run(engine, StartRequest(pipeline, given, labels={"of": name})).manifest
    for _ in range(attempts):
        attempt(engine, run.run_id)
    return run.run_id


def _operate(engine: Engine, run_id: str, operation: Operation) -> None:
    operate(engine, run_id, OperationRequest(operation, actor="ada", reason="a look first"))


def main(version: str) -> None:
    """Write the store of a version beside this file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        with zipfile.ZipFile(HERE / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.rglob("*")):
                archive.write(path, path.relative_to(folder))


if __name__ == "__main__":
    main(sys.argv[1])
