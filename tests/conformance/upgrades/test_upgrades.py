"""A store that a release wrote, with a run in every state, goes on with every version after it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold.domain.lease import fence_of
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, complete_step
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.overrides import list_overrides
from leasehold.services.purge import purge
from leasehold.services.read_results import list_files, read_output
from leasehold.services.read_runs import RunFilter, get_run, list_runs, timeline_of
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock
from tests.conformance.upgrades.catalog import ITEMS, PAID, REPAIRED
from tests.conformance.upgrades.opened import attempt, opened

STORES = sorted(Path(__file__).parent.glob("*.zip"))

STATES = {
    "pending": "PENDING",
    "handed-off": "PENDING",
    "held": "IN_PROGRESS",
    "failed": "ERROR",
    "given-up": "ERROR",
    "blocked": "BLOCKED",
    "paused": "PENDING",
    "cancelled": "PENDING",
    "completed": "COMPLETED",
    "large": "PENDING",
    "tried": "PENDING",
    "waits-for-worker": "PENDING",
    "has-worker": "IN_PROGRESS",
}
WORK = [f"{kind} {number}" for number in range(ITEMS) for kind in ("ask", "item")]
#: What is paid for after the upgrade, where a run goes on. What was paid for before is kept.
STILL_TO_PAY = {
    "pending": ["collect", *WORK],
    "handed-off": WORK,
    "held": WORK,
    "failed": WORK[5:],
    "given-up": WORK[5:],
    "blocked": [],
    "paused": WORK,
    "large": WORK,
    "tried": [*WORK, "judge 2"],
}


@pytest.fixture(params=STORES, ids=lambda path: path.stem)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(tmp_path)
    return tmp_path


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    """The store an hour later, with what was wrong put right."""
    PAID.clear()
    REPAIRED[:] = [True]
    clock = FrozenClock()
    clock.advance(timedelta(hours=1))
    with opened(folder, clock) as engine:
        yield engine
    REPAIRED.clear()


def run_of(engine: Engine, name: str) -> Manifest:
    (found,) = list_runs(engine, RunFilter(label=f"of:{name}")).runs
    return get_run(engine, found.run_id)


def completed(engine: Engine, run_id: str) -> Manifest:
    for _ in range(12):
        run = attempt(engine, run_id)
        if run.is_terminal:
            return run
    raise AssertionError(run.state)


def ask(engine: Engine, run_id: str, operation: Operation) -> Manifest:
    change = operate(engine, run_id, OperationRequest(operation, actor="ada", reason="go on"))
    return change.created or change.manifest


def test_every_run_is_found_in_the_state_it_was_left_in(engine: Engine) -> None:
    assert {name: run_of(engine, name).status for name in STATES} == STATES
    assert run_of(engine, "given-up").dead_lettered
    assert run_of(engine, "paused").paused
    assert [one["stepType"] for one in list_overrides(engine)] == ["work"]


@pytest.mark.parametrize("name", STILL_TO_PAY)
def test_each_run_goes_on_and_pays_for_nothing_twice(engine: Engine, name: str) -> None:
    run_id = run_of(engine, name).run_id
    if name == "given-up":
        run_id = ask(engine, run_id, Operation.RECREATE).run_id
    elif name == "blocked":
        ask(engine, run_id, Operation.APPROVE)
    elif name == "paused":
        ask(engine, run_id, Operation.RESUME)
    sweep(engine)

    run = get_run(engine, run_id)
    run = run if run.is_terminal else completed(engine, run_id)

    assert run.status is RunStatus.COMPLETED
    assert [name for of, name in PAID if of == run_id] == STILL_TO_PAY[name]
    assert read_output(engine, run_id)
    assert timeline_of(engine, run_id)


def test_a_remote_worker_is_given_what_waits_for_one(engine: Engine) -> None:
    run_id = run_of(engine, "waits-for-worker").run_id

    claimed = acquire_run(engine, run_id, "gpu-2")
    fence = fence_of(claimed.manifest)
    assert fence is not None
    complete_step(engine, LeaseCredentials(run_id, fence), output="{}", status="SUCCESS")

    assert completed(engine, run_id).status is RunStatus.COMPLETED


def test_the_checkpoint_of_a_remote_worker_is_given_to_the_next_one(engine: Engine) -> None:
    run_id = run_of(engine, "has-worker").run_id
    sweep(engine)

    claimed = acquire_run(engine, run_id, "gpu-2")

    assert claimed.partial_results == '{"page": 7}'
    assert claimed.manifest.position.checkpoint is not None
    assert claimed.manifest.position.checkpoint.iteration_count == 7


def test_an_ended_run_is_read_and_purged_with_its_files(engine: Engine) -> None:
    run = run_of(engine, "completed")
    files = list(list_files(engine, run.run_id).sizes)

    done = purge(engine, RunFilter(label="of:completed"), ended_before=engine.clock.now())

    assert (run_of(engine, "cancelled").cancelled, files, done.purged) == (True, ["notes.txt"], 1)
    assert list(engine.artifacts.list(f"runs/{run.run_id}")) == []
