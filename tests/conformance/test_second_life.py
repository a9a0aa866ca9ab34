"""A run whose document was deleted, by a TTL policy or in a console, and that began once more."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import run_ref
from leasehold.domain.stored import Ref, Write
from leasehold.domain.trace import TraceEvent, TraceType, loss_ref
from leasehold.errors import LeaseLostError
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, complete_step, release_step
from leasehold.services.engine import Engine
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run

pytestmark = [pytest.mark.one_store, pytest.mark.catalog("tests.worlds.catalogs.remote_step")]


def begin(engine: Engine, key: str) -> str:
    return start_run(engine, StartRequest("away", {"n": 1}, key)).manifest.run_id


def claim(engine: Engine, run_id: str) -> LeaseCredentials:
    run = acquire_run(engine, run_id, "vm-1").manifest
    assert run.position.lease is not None
    return LeaseCredentials(run_id, Fence(run.position.lease.lease_id, run.fencing_token))


def story(engine: Engine, run_id: str) -> list[str]:
    return [str(event.type) for event in timeline_of(engine, run_id)]


@pytest.fixture
def deleted(engine: Engine, unique: str) -> str:
    """A run that released its step twice and was deleted; its two events are left."""
    run_id = begin(engine, unique)
    for _ in range(2):
        release_step(engine, claim(engine, run_id))
    engine.documents.delete(run_ref(run_id))
    return run_id


def test_a_run_that_begins_again_with_its_key_moves(
    engine: Engine, deleted: str, unique: str
) -> None:
    assert begin(engine, unique) == deleted

    release_step(engine, claim(engine, deleted))
    operate(engine, deleted, OperationRequest(Operation.PAUSE, "ada"))
    operate(engine, deleted, OperationRequest(Operation.RESUME, "ada"))
    outcome = complete_step(engine, claim(engine, deleted), "1", "SUCCESS").outcome

    assert outcome == "completed"
    assert story(engine, deleted) == [
        "run_started",
        "step_started",
        "step_terminated",
        "run_paused",
        "run_resumed",
        "step_completed",
        "run_completed",
    ]


def test_a_run_that_begins_again_can_be_cancelled(
    engine: Engine, deleted: str, unique: str
) -> None:
    begin(engine, unique)

    operate(engine, deleted, OperationRequest(Operation.CANCEL, "ada"))

    assert get_run(engine, deleted).cancelled
    assert story(engine, deleted) == ["run_started", "run_cancelled"]


@pytest.mark.each_store
def test_leftovers_of_the_run_before_do_not_appear_in_the_next(engine: Engine, unique: str) -> None:
    run_id = begin(engine, unique)
    stale = claim(engine, run_id)
    before = get_run(engine, run_id)
    engine.documents.delete(run_ref(run_id))
    begin(engine, unique)
    now = get_run(engine, run_id).created_at + timedelta(minutes=1)
    lost = {"type": "lease_lost", "at": now}
    engine.documents.transact(
        loss_ref(before, stale.fence.lease_id), lambda _, __: Write(None, lost)
    )

    with pytest.raises(LeaseLostError):
        release_step(engine, stale)

    assert story(engine, run_id) == ["run_started"]


# -- a version before, whose events had no mark ----------------------------------------------------


def test_a_run_in_flight_across_the_upgrade_keeps_its_events(engine: Engine, unique: str) -> None:
    run_id = begin(engine, unique)
    run = get_run(engine, run_id)
    for number, at in ((0, run.created_at - timedelta(days=1)), (1, run.created_at)):
        event = {"type": TraceType.RUN_PAUSED.value, "at": at, "step": "away"}
        ref = Ref(f"runs/{run_id}/trace", f"{number:06d}")
        engine.documents.transact(ref, lambda _, __, event=event: Write(None, event))

    events = timeline_of(engine, run_id)

    assert [(str(event.type), event.at) for event in events] == [
        ("run_started", run.created_at),
        ("run_paused", run.created_at),
    ]


def test_an_event_of_a_later_version_is_shown_and_a_broken_one_hides_no_other(
    engine: Engine, unique: str
) -> None:
    run_id = begin(engine, unique)
    at = get_run(engine, run_id).created_at
    broken = {"type": "step_error"}
    later = {"type": "step_pondered", "at": at, "step": "away", "mood": "deep"}
    for number, event in enumerate((broken, later)):
        ref = Ref(f"runs/{run_id}/trace", f"{number:06d}")
        engine.documents.transact(ref, lambda _, __, event=event: Write(None, event))

    found: list[TraceEvent] = timeline_of(engine, run_id)

    assert [str(event.type) for event in found] == ["run_started", "step_pondered"]
