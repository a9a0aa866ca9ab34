"""Steps of this bundle, while the artifact store is away: they wait, and nothing counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from leasehold.domain.artifact_name import files_folder
from leasehold.domain.kept_checkpoint import MAX_REJECTED_CHECKPOINTS
from leasehold.domain.lifecycle import Operation
from leasehold.services.operate import OperationRequest, operate
from tests.chaos.outages.catalog import CALLS, DOES, LARGE
from tests.chaos.outages.conftest import Make, Store, cancel, deferrals
from tests.worlds.waiting import until


def test_finished_work_is_kept_when_the_store_comes_back(make: Make, store: Store) -> None:
    """It may have cost minutes of model calls: the lease is renewed, and the handler ran once."""
    DOES["make"] = store.goes_once
    with make(PIPELINE_LEASE_TTL_S="3") as engine:
        run = engine.start("makes", {})
        until(lambda: CALLS[run.run_id, "make"])
        lease = engine.show(run.run_id).position.lease
        assert lease is not None
        until(
            lambda: (
                (engine.show(run.run_id).position.heartbeat_at or lease.acquired_at)
                > lease.expires_at
            )
        )
        store.comes_back()
        done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert CALLS[run.run_id, "make"] == CALLS[run.run_id, "take"] == 1
    assert done.fencing_token == 2


def test_a_step_whose_input_cannot_be_loaded_is_deferred_until_it_can(
    make: Make, store: Store
) -> None:
    """Its handler does not begin, and each attempt holds a worker for a lease's length only."""
    with make(workers=0) as before:
        run = before.start("makes", {"text": LARGE})
    store.goes()
    with make(PIPELINE_MAX_RETRIES="0", PIPELINE_MAX_INTERRUPTIONS="0") as engine:
        engine.adopt_all()
        until(lambda: deferrals(engine, run) >= 2)
        waiting = engine.show(run.run_id)
        store.comes_back()
        done = engine.wait(run.run_id, 30)
        terminated = [
            event for event in engine.trace(run.run_id) if event.type == "step_terminated"
        ]

    assert waiting.position.attempts.failed == waiting.position.interruptions == 0
    assert done.status == "COMPLETED"
    assert CALLS[run.run_id, "make"] == 1
    assert done.steps["make"].attempts.deferred == len(terminated) >= 2
    assert {event.reason for event in terminated} == {"store_unavailable"}
    assert {event.detail and "does not answer" in event.detail for event in terminated} == {True}


def test_a_shutdown_ends_an_attempt_that_waits_for_the_store(make: Make, store: Store) -> None:
    """Its lease is released within the grace, and the outage stays an outage."""
    DOES["make"] = store.goes_once
    with make(PIPELINE_LEASE_TTL_S="60") as engine:
        run = engine.start("makes", {})
        until(lambda: CALLS[run.run_id, "make"])
        before = engine.engine.clock.monotonic()
        engine.close(grace=30)
        took = engine.engine.clock.monotonic() - before
    with make(workers=0) as after:
        left = after.show(run.run_id)

    assert took < 20
    assert left.position.lease is None
    assert left.status == "PENDING"
    assert (left.position.attempts.deferred, left.position.interruptions) == (1, 0)


def test_a_run_that_is_cancelled_does_not_wait_for_the_store(make: Make, store: Store) -> None:
    DOES["make"] = store.goes_once
    with make(workers=1) as engine:
        run = engine.start("makes", {})
        until(lambda: CALLS[run.run_id, "make"])
        cancel(engine, run.run_id)
        until(lambda: not engine.held_runs())
        DOES.clear()
        store.comes_back()
        another = engine.start("makes", {"n": 2})
        done = engine.wait(another.run_id, 30)

        assert engine.show(run.run_id).cancelled
    assert done.status == "COMPLETED"


def test_a_checkpoint_that_cannot_be_loaded_is_waited_for(make: Make, store: Store) -> None:
    """The step goes on from there in the end: it neither fails nor begins anew."""
    DOES["keep"] = store.goes_once
    with make() as engine:
        run = engine.start("keeps", {})
        until(lambda: deferrals(engine, run) >= 1)
        store.comes_back()
        done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert done.steps["keep"].attempts.failed == 1  # the provider, once
    assert CALLS[run.run_id, "keep"] == 2


def lose_checkpoints(store: Store) -> None:
    for kept in (store.root / "runs").rglob("*.json.gz"):
        kept.unlink()


def test_a_checkpoint_that_is_lost_begins_the_step_anew(make: Make, store: Store) -> None:
    """Its checkpoint then is progress again, so its only retry is not used up."""

    def lose_once() -> None:
        lose_checkpoints(store)
        DOES.clear()

    DOES["keep"] = lose_once
    with make() as engine:
        run = engine.start("keeps", {})
        done = engine.wait(run.run_id, 30)

    assert (done.status, done.steps["keep"].rejected) == ("COMPLETED", 1)
    assert CALLS[run.run_id, "keep"] == 3  # one anew, and one that goes on from its checkpoint
    assert (done.position.attempts.failed, done.position.attempts.deferred) == (2, 0)


def test_a_step_whose_checkpoints_are_lost_each_time_is_given_up(make: Make, store: Store) -> None:
    DOES["keep"] = lambda: lose_checkpoints(store)
    with make() as engine:
        run = engine.start("keeps", {})
        done = engine.wait(run.run_id, 30)

    assert done.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert done.steps["keep"].rejected == MAX_REJECTED_CHECKPOINTS + 1
    assert CALLS[run.run_id, "keep"] == MAX_REJECTED_CHECKPOINTS + 2
    assert done.position.attempts.deferred == 0


def test_a_value_that_is_lost_blocks_the_run_until_it_is_back(
    make: Make, store: Store, tmp_path: Path
) -> None:
    """The store answers, so this is no outage; and nothing counts, as it may lie elsewhere."""
    with make(workers=0) as before:
        run = before.start("makes", {"text": LARGE})
    [kept] = (store.root / "runs").rglob("input-*")
    elsewhere = kept.rename(tmp_path / kept.name)
    with make() as engine:
        engine.adopt_all()
        blocked = engine.wait(run.run_id, 30)
        calls = CALLS[run.run_id, "make"]
        elsewhere.rename(kept)
        operate(engine.engine, run.run_id, OperationRequest(Operation.RETRY, "ada"))
        done = engine.wait(run.run_id, 30)

    assert blocked.block is not None
    assert (blocked.status, blocked.block.code) == ("BLOCKED", "input_missing")
    assert (blocked.dead_lettered, calls) == (False, 0)
    assert (
        blocked.position.attempts.failed,
        blocked.position.attempts.deferred,
        blocked.position.interruptions,
    ) == (0, 0, 0)
    assert (done.status, done.position.attempts.failed) == ("COMPLETED", 0)
    assert CALLS[run.run_id, "make"] == 1


def test_no_store_is_begun_anew_in_place_of_one_that_is_away_when_a_process_starts(
    make: Make, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It never saw the store: the runs wait, also its own, and go on when the store is back."""
    with make(workers=0) as before:
        run = before.start("makes", {"text": LARGE})
    store.goes()
    with make(PIPELINE_MAX_RETRIES="0", PIPELINE_LEASE_TTL_S="3") as engine:
        other = engine.start("makes", {})
        engine.adopt_all()
        until(lambda: deferrals(engine, run) >= 1)
        until(lambda: CALLS[other.run_id, "make"])
        said = [line for line in caplog.messages if "it is not mounted, or it is lost" in line]
        store.comes_back()
        done = [engine.wait(waiting.run_id, 30) for waiting in (run, other)]

    assert said
    assert [found.status for found in done] == ["COMPLETED", "COMPLETED"]
    assert [found.position.attempts.failed for found in done] == [0, 0]
    assert CALLS[run.run_id, "make"] == CALLS[other.run_id, "make"] == 1


def test_a_store_that_a_person_begins_anew_in_place_of_one_that_is_away_gives_no_run_up(
    make: Make, store: Store
) -> None:
    """A run whose values are not in it waits for them, and others go on."""
    with make(workers=0) as before:
        run = before.start("makes", {"text": LARGE})
    [mark] = store.root.glob(".store-*")
    store.goes()
    store.root.mkdir()
    mark.touch()
    with make() as engine:
        other = engine.wait(engine.start("makes", {}).run_id, 30)
        engine.adopt_all()
        until(lambda: deferrals(engine, run) >= 2)
        shutil.rmtree(store.root)
        store.comes_back()
        done = engine.wait(run.run_id, 30)

    assert (other.status, done.status) == ("COMPLETED", "COMPLETED")
    assert CALLS[run.run_id, "make"] == 1


@pytest.mark.parametrize(
    "passes", ["as it is", "as a cause", "as a context", "as permanent", "in a group"]
)
def test_a_call_of_a_handler_that_meets_an_outage_defers_its_attempt(
    make: Make, store: Store, passes: str
) -> None:
    """It has no retry, and would be given up by a single failure."""
    DOES["ask"] = store.goes_once
    with make() as engine:
        run = engine.start("asks", {"how": "put", "passes": passes})
        until(lambda: deferrals(engine, run) >= 1)
        DOES.clear()
        store.comes_back()
        done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert done.position.attempts.failed == 0


@pytest.mark.parametrize("how", ["get", "exists", "list", "output"])
def test_each_call_of_the_store_may_meet_an_outage(make: Make, store: Store, how: str) -> None:
    DOES["ask"] = store.goes_once
    with make() as engine:
        run = engine.start("asks_later", {"how": how})
        until(lambda: engine.show(run.run_id).steps["ask"].attempts.deferred >= 1)
        DOES.clear()
        folder = store.root.with_name("away") / files_folder(run)
        folder.mkdir(parents=True)
        (folder / "report.md").touch()
        store.comes_back()
        done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert done.steps["ask"].attempts.failed == 0


def test_a_checkpoint_waits_for_the_store(make: Make, store: Store) -> None:
    """Its checkpoint is kept, so the handler does not repeat the work."""
    DOES["ask"] = store.goes_once
    with make(PIPELINE_LEASE_TTL_S="3") as engine:
        run = engine.start("asks", {"how": "checkpoint"})
        until(lambda: CALLS[run.run_id, "ask"])
        lease = engine.show(run.run_id).position.lease
        assert lease is not None
        until(
            lambda: (
                (engine.show(run.run_id).position.heartbeat_at or lease.acquired_at)
                > lease.expires_at
            )
        )
        store.comes_back()
        done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert CALLS[run.run_id, "ask"] == 1
    assert done.position.attempts.ended == 0


def test_an_outage_that_a_handler_says_is_not_the_cause_is_not(make: Make, store: Store) -> None:
    DOES["ask"] = store.goes_once
    with make() as engine:
        run = engine.start("asks", {"how": "put", "passes": "as its own"})
        done = engine.wait(run.run_id, 30)

    assert done.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert done.position.attempts.deferred == 0


def test_a_file_that_is_not_there_is_no_outage(make: Make) -> None:
    """Nor is a store that is still empty."""
    with make() as engine:
        run = engine.start("asks", {"how": "get"})
        done = engine.wait(run.run_id, 30)

    assert done.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert done.error is not None
    assert done.error.code == "artifact_not_found"


def test_a_gate_that_meets_an_outage_is_asked_again(make: Make, store: Store) -> None:
    """The output that it judges is not thrown away, and the gate before it is not run again."""
    DOES["judge"] = lambda: (DOES.clear(), store.goes())
    with make() as engine:
        run = engine.start("judges", {})
        until(lambda: CALLS[run.run_id, "judge"] >= 2)
        store.comes_back()
        done = engine.wait(run.run_id, 30)

    assert done.status == "COMPLETED"
    assert CALLS[run.run_id, "take"] == CALLS[run.run_id, "pass_first"] == 1
    assert done.steps["judged"].attempts.ended == 0
