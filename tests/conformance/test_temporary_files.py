"""Large checkpoints of remote workers, on both stores: what they leave, and what is damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold.attempt.attempt import Attempt
from leasehold.attempt.checkpoints import keep_checkpoint
from leasehold.domain import lifecycle
from leasehold.domain.artifact_name import files_folder, step_folder
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.lease import fence_of
from leasehold.domain.lifecycle import NewRun, Operation
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.domain.stored import Write
from leasehold.errors import InvalidRequestError, LeaseLostError, StoreUnavailableError
from leasehold.ports.clock import Clock
from leasehold.ports.documents import Committed, Documents
from leasehold.remote_workers.claim_step import ClaimedStep, acquire_run
from leasehold.remote_workers.manage_lease import (
    LeaseCredentials,
    complete_step,
    release_step,
    save_checkpoint,
)
from leasehold.services.engine import Engine, find_run
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.worlds.wrapped import Wrapped

pytestmark = [pytest.mark.one_store, pytest.mark.catalog("tests.worlds.catalogs.remote_step")]

LARGE = '["' + "x" * 40_000 + '"]'


def claim(engine: Engine, run_id: str) -> tuple[ClaimedStep, LeaseCredentials]:
    claimed = acquire_run(engine, run_id, "vm-1")
    return claimed, LeaseCredentials(run_id, fence_of(claimed.manifest))


@pytest.fixture
def run_id(engine: Engine, unique: str) -> str:
    return start_run(engine, StartRequest("away", {"n": 1}, unique)).manifest.run_id


def keep(engine: Engine, worker: LeaseCredentials, count: int, results: str = LARGE) -> None:
    save_checkpoint(engine, worker, iteration_count=count, phase="", partial_results=results)


def files(engine: Engine, run_id: str) -> list[str]:
    return list(engine.artifacts.list(f"runs/{run_id}"))


def story(engine: Engine, run_id: str) -> list[str]:
    return [str(event.type) for event in timeline_of(engine, run_id)]


@pytest.mark.each_store
def test_there_is_one_file_at_a_time_and_none_after_the_step(engine: Engine, run_id: str) -> None:
    _, worker = claim(engine, run_id)
    for count in (1, 2, 3):
        keep(engine, worker, count)
        assert len(files(engine, run_id)) == 1
    keep(engine, worker, 4, "[]")
    assert files(engine, run_id) == []
    keep(engine, worker, 5)

    complete_step(engine, worker, "{}", "SUCCESS")

    run = find_run(engine, run_id).manifest
    assert (run.status, files(engine, run_id)) == ("COMPLETED", [])
    assert (run.owed, run.alarm_at) == ((), None)


def test_what_is_refused_leaves_no_file(engine: Engine, run_id: str) -> None:
    _, worker = claim(engine, run_id)
    keep(engine, worker, 5)
    kept = files(engine, run_id)

    with pytest.raises(InvalidRequestError, match="iteration_count is 4; allowed: 5 or more"):
        keep(engine, worker, 4)
    assert files(engine, run_id) == kept

    release_step(engine, worker)
    with pytest.raises(LeaseLostError):
        keep(engine, worker, 6)
    assert files(engine, run_id) == kept


class LosesAnswer(Wrapped[Documents]):
    """A store whose answer to the next write is lost, while the write stands."""

    def __init__(self, inner: Documents) -> None:
        super().__init__(inner)
        self.is_next = True

    def transact(self, *given: Any, **named: Any) -> Committed[Any]:
        committed = self.inner.transact(*given, **named)
        if self.is_next:
            self.is_next = False
            raise StoreUnavailableError(store="store", problem="its answer was lost")
        return committed


class SkipsWaits(Wrapped[Clock]):
    """A clock that skips waits; something happens meanwhile."""

    def __init__(self, inner: Clock) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], object] = lambda: None

    def skip(self, _: float) -> None:
        self.meanwhile()


def test_a_checkpoint_that_is_recorded_twice_keeps_its_file(engine: Engine, run_id: str) -> None:
    """The answer to its write was lost, and a renewal has read the run before it is repeated."""
    _, worker = claim(engine, run_id)
    keep(engine, worker, 1)
    clock = SkipsWaits(engine.clock)
    forgetful = replace(engine, documents=LosesAnswer(engine.documents), clock=clock)
    attempt = Attempt(forgetful, find_run(engine, run_id), worker.fence, patience=60)
    clock.meanwhile = attempt.beat

    keep_checkpoint(attempt, 2, "", LARGE)

    kept = find_run(engine, run_id).manifest.position.checkpoint
    assert kept is not None
    assert (kept.iteration_count, kept.partial_results.ref in files(engine, run_id)) == (2, True)


def test_a_damaged_checkpoint_is_rejected_with_the_claim(engine: Engine, run_id: str) -> None:
    """The worker gets the step, and begins at the beginning; the trace says why."""
    _, worker = claim(engine, run_id)
    keep(engine, worker, 5)
    release_step(engine, worker)
    (name,) = files(engine, run_id)
    engine.artifacts.put(name, engine.artifacts.get(name)[:-5])

    claimed, worker = claim(engine, run_id)

    assert (claimed.partial_results, claimed.manifest.position.checkpoint) == (None, None)
    assert story(engine, run_id)[-2:] == ["checkpoint_resumed", "checkpoint_rejected"]
    keep(engine, worker, 1)
    assert find_run(engine, run_id).manifest.position.lease is not None


def test_artifacts_that_are_away_keep_the_step_and_its_checkpoint(
    engine: Engine, run_id: str, tmp_path: Path
) -> None:
    _, worker = claim(engine, run_id)
    keep(engine, worker, 5)
    release_step(engine, worker)
    (tmp_path / "artifacts").rename(tmp_path / "away")

    with pytest.raises(StoreUnavailableError):
        claim(engine, run_id)
    (tmp_path / "away").rename(tmp_path / "artifacts")

    claimed, _ = claim(engine, run_id)
    assert claimed.partial_results == LARGE


def test_what_the_worker_of_a_cancelled_run_stores_late_is_left_to_the_sweep(
    engine: Engine, run_id: str
) -> None:
    claimed, worker = claim(engine, run_id)
    keep(engine, worker, 5)

    before = files(engine, run_id)
    orphan = f"{step_folder(claimed.manifest, 'away', 1)}/1-unknown.json.gz"
    engine.artifacts.put(orphan, b"what a kill left")

    operate(engine, run_id, OperationRequest(Operation.CANCEL, actor="ada"))

    run = find_run(engine, run_id).manifest
    assert files(engine, run_id) == before  # a run that is made of it goes on from there
    assert len(before) == 1
    assert run.position.heartbeat_at is not None
    assert run.alarm_at == run.position.heartbeat_at + timedelta(hours=1)


def ended(engine: Engine, run_id: str) -> Manifest:
    """A run that was completed two hours ago, and whose worker was killed then."""
    at, rules, value = engine.clock.now() - timedelta(hours=2), engine.rules, KeptValue(text="{}")
    new = NewRun(run_id, "away", ("away",), value, "digest", "nonce")
    run = lifecycle.start(None, at, rules=rules, new=new).manifest
    run = lifecycle.claim(run, at, rules=rules, lease_id="lease-1", holder="a").manifest
    facts = {"rules": rules, "fence": fence_of(run)}
    large = KeptValue(ref=f"{step_folder(run, 'away', 1)}/1-a.json.gz", digest="d")
    place = {"iteration_count": 1, "phase": "", "partial_results": large}
    run = lifecycle.checkpoint(run, at, **facts, **place).manifest
    return lifecycle.complete(run, at, **facts, output=value).manifest


@pytest.mark.each_store
def test_what_is_left_of_an_ended_run_is_swept_after_an_hour(engine: Engine, unique: str) -> None:
    run = ended(engine, unique)
    report = f"{files_folder(run)}/report"
    engine.artifacts.put(f"{step_folder(run, 'away', 1)}/1-a.json.gz", b"left behind")
    engine.artifacts.put(report, b"kept")
    document = to_document(run)
    engine.documents.transact(run_ref(unique), lambda _, __: Write(None, document))

    sweep(engine, among={unique})

    run = find_run(engine, unique).manifest
    assert files(engine, unique) == [report]
    assert (run.owed, run.alarm_at, story(engine, unique)[-1]) == ((), None, "run_completed")
