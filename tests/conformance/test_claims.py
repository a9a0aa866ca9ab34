"""Whichever store keeps the runs, and however many workers ask at once: a run has one lease."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from leasehold import PipelineEntry, Registry, StepDispatchEntry
from leasehold.attempt.attempt import Attempt
from leasehold.domain.change import Change
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Progress
from leasehold.domain.notes import ThreadStack
from leasehold.domain.status import Outcome
from leasehold.domain.stored import replace
from leasehold.errors import LeaseHeldError, LeaseLostError, NothingToClaimError
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import ClaimedStep, acquire_run, claim_step
from leasehold.remote_workers.manage_lease import (
    LeaseCredentials,
    complete_step,
    release_step,
    renew_lease,
    save_checkpoint,
)
from leasehold.services.engine import Engine, change_run, find_run
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from tests.worlds.builders import at_position
from tests.worlds.engines import OpenEngine


@pytest.fixture
def engine(open_engine: OpenEngine, unique: str) -> Engine:
    """An engine whose step type no other test has; the store is the module's."""
    entry = StepDispatchEntry(
        step_type=unique,
        handler="remote",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )
    pipeline = PipelineEntry(name=unique, steps=(unique,))
    return open_engine(Catalog(Registry("dispatch", [entry]), Registry("pipelines", [pipeline])))


@pytest.fixture
def start(engine: Engine, unique: str) -> Callable[[], str]:
    return lambda: start_run(engine, StartRequest(unique, {"n": 1})).manifest.run_id


def at_its_deadline(engine: Engine, claimed: ClaimedStep) -> LeaseCredentials:
    """The worker got its lease so long ago that the dispatch deadline is over."""

    def made_earlier(run: Manifest, _: datetime) -> Change:
        assert run.position.lease is not None
        acquired_at = run.position.lease.acquired_at - timedelta(minutes=2)
        lease = replace(run.position.lease, acquired_at=acquired_at)
        return Change(Outcome.RENEWED, at_position(run, lease=lease))

    change_run(engine, claimed.manifest.run_id, made_earlier)
    return credentials_of(claimed)


def credentials_of(claimed: ClaimedStep) -> LeaseCredentials:
    run = claimed.manifest
    assert run.position.lease is not None
    return LeaseCredentials(run.run_id, Fence(run.position.lease.lease_id, run.fencing_token))


def test_claims_come_in_the_order_of_the_starts(
    engine: Engine, start: Callable[[], str], unique: str
) -> None:
    runs = [start() for _ in range(12)]

    claimed = [claim_step(engine, unique, "vm-1").manifest.run_id for _ in runs]

    assert claimed == runs
    with pytest.raises(NothingToClaimError):
        claim_step(engine, unique, "vm-1")


def test_of_many_that_claim_at_once_each_run_goes_to_one(
    kind: str, engine: Engine, start: Callable[[], str], unique: str
) -> None:
    """The emulator lets those who read under one lock wait 2 s each; Firestore itself does not."""
    how_many, workers = (6, 2) if kind == "firestore" else (24, 8)
    runs = {start() for _ in range(how_many)}

    def claim_all(worker: int) -> list[ClaimedStep]:
        claimed = []
        while True:
            try:
                claimed.append(claim_step(engine, unique, f"vm-{worker}"))
            except NothingToClaimError:
                return claimed

    with ThreadPoolExecutor(workers) as threads:
        claimed = [one for found in threads.map(claim_all, range(workers)) for one in found]

    assert sorted(one.manifest.run_id for one in claimed) == sorted(runs)
    assert {one.manifest.fencing_token for one in claimed} == {1}
    for one in claimed:
        renew_lease(engine, credentials_of(one))


def test_of_many_that_want_one_run_one_gets_it(
    kind: str, engine: Engine, start: Callable[[], str]
) -> None:
    run_id = start()
    workers = 2 if kind == "firestore" else 8

    def acquire(worker: int) -> ClaimedStep | None:
        try:
            return acquire_run(engine, run_id, f"vm-{worker}")
        except LeaseHeldError:
            return None

    with ThreadPoolExecutor(workers) as threads:
        claimed = [one for one in threads.map(acquire, range(workers)) if one]

    assert len(claimed) == 1


def test_a_step_goes_on_from_its_checkpoint_and_is_settled_once(
    engine: Engine, start: Callable[[], str], unique: str
) -> None:
    run_id = start()
    first = claim_step(engine, unique, "vm-1")
    large = '["' + "é" * 40_000 + '"]'
    save_checkpoint(
        engine, credentials_of(first), iteration_count=3, phase="reading", partial_results=large
    )
    release_step(engine, credentials_of(first))

    second = claim_step(engine, unique, "vm-2")
    outcomes = [
        complete_step(engine, credentials_of(second), "2", "SUCCESS").outcome for _ in range(2)
    ]

    checkpoint = second.manifest.position.checkpoint
    assert checkpoint is not None
    assert (second.manifest.run_id, second.manifest.fencing_token) == (run_id, 2)
    assert (checkpoint.phase, checkpoint.iteration_count) == ("reading", 3)
    assert second.partial_results == large
    assert outcomes == ["completed", "completed"]
    with pytest.raises(LeaseLostError):
        renew_lease(engine, credentials_of(second))


def test_a_worker_that_renews_forever_is_ended_at_its_deadline(
    engine: Engine, start: Callable[[], str], unique: str
) -> None:
    """In the very commit of its renewal: no sweep has to find out."""
    run_id = start()
    lease = at_its_deadline(engine, claim_step(engine, unique, "vm-1"))

    with pytest.raises(LeaseLostError) as refused:
        renew_lease(engine, lease, Progress(fraction=0.9))

    assert refused.value.message.endswith(
        f"is not held any more: the attempt was still at work at the dispatch deadline of step "
        f"{unique}, and failed. The attempt is ended. The run is ERROR."
    )
    run = get_run(engine, run_id)
    assert (run.status, run.position.lease, run.position.attempts.failed) == ("ERROR", None, 1)
    assert run.error is not None
    assert run.error.code == "dispatch_deadline_exceeded"
    assert run.steps[unique].progress == Progress(fraction=0.9)
    with pytest.raises(LeaseLostError, match="the run has no lease, it is ERROR"):
        complete_step(engine, lease, "1", "SUCCESS")


def test_a_checkpoint_at_the_deadline_is_kept_although_it_ends_the_attempt(
    engine: Engine, start: Callable[[], str], unique: str
) -> None:
    run_id = start()
    lease = at_its_deadline(engine, claim_step(engine, unique, "vm-1"))

    with pytest.raises(LeaseLostError, match=r"The checkpoint is kept\. The run is ERROR"):
        save_checkpoint(engine, lease, iteration_count=3, phase="", partial_results="[1]")

    run = get_run(engine, run_id)
    assert run.position.attempts.failed == 1
    assert run.position.checkpoint is not None
    assert (run.position.checkpoint.iteration_count, run.position.checkpoint.inline) == (3, "[1]")


def test_what_an_attempt_did_at_its_limit_is_kept_with_the_run_and_in_its_trace(
    engine: Engine, start: Callable[[], str], unique: str
) -> None:
    """Longer than what a store has indexes of."""
    run_id = start()
    claimed = claim_step(engine, unique, "vm-1")
    known = find_run(engine, run_id)
    stacks = "File shop.py, line 7\n" * 300
    attempt = Attempt(
        engine,
        known,
        credentials_of(claimed).fence,
        stack_of=lambda _thread, _path: ThreadStack(stacks, "shop.py:7 (charge)"),
    )
    attempt.progress = Progress(fraction=0.5)

    attempt.call("handler", "shop:charge", attempt.end_at_limit)

    run = get_run(engine, run_id)
    (event,) = [event for event in timeline_of(engine, run_id) if event.stacks]
    assert (event.type, event.stacks) == ("step_terminated", stacks)
    assert run.error is not None
    assert (run.error.traceback, run.error.origin) == (stacks, "shop.py:7 (charge)")
    assert run.steps[unique].progress == Progress(fraction=0.5)
