"""The sweep finds overdue work, and does it."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from leasehold.adapters.clock import SystemClock
from leasehold.bootstrap import boot
from leasehold.devserver.cloud_tasks import CloudTasksDouble
from leasehold.domain import lifecycle
from leasehold.domain.effect import Task, dispatch_task
from leasehold.domain.lease import fence_of
from leasehold.domain.lifecycle.start import SHARDS
from leasehold.domain.manifest import Manifest, run_ref
from leasehold.domain.manifest_parts import ErrorRecord
from leasehold.domain.status import BlockCode
from leasehold.domain.stored import Write
from leasehold.errors import StoreUnavailableError
from leasehold.services.engine import change_run
from leasehold.services.execute_step import Hint, arrive
from leasehold.services.paging import WHOLE_RUNS
from leasehold.services.sweep import sweep
from leasehold.testing import FrozenClock, InProcessEngine
from tests.worlds.catalogs.sample import PIPELINES, STEPS
from tests.worlds.functions import Function, function_of, spoil

NOTHING = {
    "deadLettered": 0,
    "byReason": {},
    "recovered": 0,
    "redispatched": 0,
    "stillQueued": 0,
    "unattended": 0,
    "purged": 0,
    "scheduled": 0,
    "reannounced": 0,
    "archived": 0,
    "documentsRead": 0,
    "more": False,
}


@pytest.fixture
def sweep_dead_letters(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Function]:
    """The function beside a queue that all processes see, and that delivers nothing."""
    double = CloudTasksDouble()
    monkeypatch.setenv("LEASEHOLD_TASKS", "cloud-tasks://local/local")
    monkeypatch.setenv("LEASEHOLD_FUNCTION_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("CLOUD_TASKS_EMULATOR_URL", double.start())
    double.stop_deliveries()
    try:
        yield from function_of("sweep_dead_letters")
    finally:
        double.stop()


def unclaimed(environ: dict[str, str], count: int) -> None:
    """Start runs of a remote step without a claim until six minutes ago, while sweeps ran."""
    clock = FrozenClock(SystemClock().now() - timedelta(minutes=66))
    with InProcessEngine(STEPS, PIPELINES, environ=environ, clock=clock, workers=0) as engine:
        for number in range(count):
            engine.start("away", {"n": number})
        engine.run_until_idle()
        for _ in range(5):
            clock.advance(600)
            sweep(engine.engine)


@pytest.fixture
def long_ago(environ: dict[str, str]) -> InProcessEngine:
    """An engine whose time is past: what it leaves is overdue today."""
    return InProcessEngine(STEPS, PIPELINES, environ=environ, clock=FrozenClock(), workers=0)


def test_a_sweep_with_nothing_due_does_nothing(
    engine: InProcessEngine, sweep_dead_letters: Function
) -> None:
    engine.start("three", {"n": 1})

    assert sweep_dead_letters.post() == (200, NOTHING)


def test_a_dispatch_whose_task_is_lost_gets_a_new_one(
    long_ago: InProcessEngine, engine: InProcessEngine, sweep_dead_letters: Function
) -> None:
    """The queue that all processes see does not have it."""
    with long_ago:
        run = long_ago.start("three", {"n": 1})

    answer = sweep_dead_letters.post()
    again = sweep_dead_letters.post()

    moved = engine.show(run.run_id)
    assert answer == (200, NOTHING | {"redispatched": 1, "documentsRead": 1})
    assert again == (200, NOTHING)
    assert (moved.status, moved.position.dispatch.generation) == ("PENDING", 2)
    assert [event.type for event in engine.trace(run.run_id)][-1] == "step_redispatched"


def test_one_call_goes_on_until_nothing_is_due(
    long_ago: InProcessEngine, sweep_dead_letters: Function
) -> None:
    """Cloud Scheduler reads no answer: it would not call again where more is due."""
    with long_ago:
        for number in range(103):
            long_ago.start("three", {"n": number})

    first, second = sweep_dead_letters.post(), sweep_dead_letters.post()

    assert first == (200, NOTHING | {"redispatched": 103, "documentsRead": 103})
    assert second == (200, NOTHING)


def test_what_a_sweep_did_is_one_line_of_the_log(
    long_ago: InProcessEngine,
    environ: dict[str, str],
    sweep_dead_letters: Function,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A sweep that found nothing due writes none, whatever it is called by and how often."""
    unclaimed(environ, 2)
    with long_ago:
        long_ago.start("three", {"n": 4})

    sweep_dead_letters.post()
    sweep_dead_letters.post()

    lines = [json.loads(record.message) for record in caplog.records if "{" in record.message]
    lines = [line for line in lines if "sweepJobId" in line]
    (line,) = [line for line in lines if line["event"] == "SWEEP_FINISHED"]
    (job_id,) = {each["sweepJobId"] for each in lines}
    assert line == {
        "severity": "INFO",
        "message": "sweep: 0 recovered, 1 redispatched, 0 still queued, "
        "2 (2 NEVER_STARTED) given up, 0 unattended",
        "event": "SWEEP_FINISHED",
        "sweepJobId": job_id,
        **NOTHING,
        "deadLettered": 2,
        "byReason": {"NEVER_STARTED": 2},
        "redispatched": 1,
        "documentsRead": 3,
        "oldestPendingS": 0,
        "detail": None,
    }


def test_a_sweep_is_posted(sweep_dead_letters: Function) -> None:
    assert sweep_dead_letters.get("/")[0] == 405


def test_a_run_that_cannot_be_read_stops_no_other(
    long_ago: InProcessEngine, engine: InProcessEngine, sweep_dead_letters: Function
) -> None:
    with long_ago:
        runs = [long_ago.start("three", {"n": number}).run_id for number in range(5)]
        spoil(long_ago, runs[2])

    status, swept = sweep_dead_letters.post()

    assert (status, swept["redispatched"], swept["documentsRead"]) == (200, 4, 5)
    assert engine.adopt_all() == 4


def test_a_run_whose_queue_is_missing_stops_no_other(
    long_ago: InProcessEngine, environ: dict[str, str]
) -> None:
    """The sweep tells of it once all the others are attended."""
    with long_ago:
        for number in range(20):
            long_ago.start(("three", "half")[number % 2], {"n": number})
    tasks = OneQueueMissing()
    bundle = boot(environ, tasks=tasks)
    try:
        with pytest.raises(StoreUnavailableError, match="no such queue"):
            sweep(bundle.engine)
    finally:
        bundle.close()

    assert len(tasks.created) == 10


def test_more_than_a_page_of_runs_of_a_queue_that_fails_hide_no_run_behind_them(
    long_ago: InProcessEngine, environ: dict[str, str]
) -> None:
    """The queue is asked once a sweep: each try would take its time, while the others wait."""
    with long_ago:
        for number in range(WHOLE_RUNS + 20):
            long_ago.start("half", {"n": number})
        long_ago.start("three", {"n": 1})
    tasks = OneQueueMissing()
    bundle = boot(environ, tasks=tasks)
    try:
        with pytest.raises(StoreUnavailableError, match="no such queue"):
            sweep(bundle.engine)
    finally:
        bundle.close()

    assert (len(tasks.created), tasks.refused) == (1, 1)


def test_a_run_that_is_given_up_is_counted_by_its_reason(
    long_ago: InProcessEngine, environ: dict[str, str], sweep_dead_letters: Function
) -> None:
    """They were not claimed: the step `away` waits for workers elsewhere, an hour at most."""
    unclaimed(environ, 3)
    with long_ago:
        long_ago.start("three", {"n": 4})

    answer = sweep_dead_letters.post()

    assert answer == (
        200,
        NOTHING
        | {
            "deadLettered": 3,
            "byReason": {"NEVER_STARTED": 3},
            "redispatched": 1,
            "documentsRead": 4,
        },
    )
    assert sweep_dead_letters.post() == (200, NOTHING)


def test_a_run_in_an_impossible_state_stops_no_other_and_is_set_right(
    long_ago: InProcessEngine, engine: InProcessEngine, sweep_dead_letters: Function
) -> None:
    """A completed run with an alarm and a step that is unknown: no transition fits it."""
    with long_ago:
        runs = [long_ago.start("three", {"n": number}).run_id for number in range(5)]
        overwrite(long_ago, runs[2], status="COMPLETED", currentStep="add_again")

    status, swept = sweep_dead_letters.post()

    assert (status, swept["redispatched"], swept["documentsRead"]) == (200, 4, 5)
    assert engine.show(runs[2]).alarm_at is None
    assert sweep_dead_letters.post() == (200, NOTHING)


def test_a_backlog_that_is_due_again_and_again_keeps_no_sweep_from_other_shards(
    environ: dict[str, str],
) -> None:
    """A paused queue holds a page of runs of the first shard; one of the last is elsewhere."""
    clock = FrozenClock()
    with (
        InProcessEngine(STEPS, PIPELINES, environ=environ, clock=clock, workers=0) as other,
        InProcessEngine(STEPS, PIPELINES, environ=environ, clock=clock, workers=0) as engine,
    ):
        lost = other.start("three", {"n": 1}, idempotency_key=keys_of(15)[0])
        for key in keys_of(0)[:WHOLE_RUNS]:
            engine.start("three", {"n": 1}, idempotency_key=key)
        for _ in range(12):
            clock.advance(61)
            sweep(engine.engine)
        found = engine.show(lost.run_id)

    assert engine.engine.tasks.exists(dispatch_task(found)), "it is taken up"
    assert (found.position.dispatch.generation, found.position.dispatch.enqueued) == (1, True)


def keys_of(shard: int) -> list[str]:
    """Keys of runs that are in this shard."""
    keys = [f"key-{number}" for number in range(2400)]
    run_ids = {key: f"r-{hashlib.sha256(key.encode()).hexdigest()[:16]}" for key in keys}
    return [key for key in keys if zlib.crc32(run_ids[key].encode()) % SHARDS == shard]


def overwrite(engine: InProcessEngine, run_id: str, **fields: str) -> None:
    engine.engine.documents.transact(
        run_ref(run_id), lambda found, _: Write(None, {**(found or {}), **fields})
    )


class OneQueueMissing:
    """A task queue service where one queue was never made."""

    def __init__(self) -> None:
        self.created: list[Task] = []
        self.refused = 0

    def create(self, task: Task) -> None:
        if task.queue == "half":
            self.refused += 1
            raise StoreUnavailableError(store="Cloud Tasks", problem="no such queue")
        self.created.append(task)

    def exists(self, task: Task) -> bool:
        return task in self.created


def test_the_first_sweep_of_a_process_looks_at_what_waits_for_other_code(
    engine: InProcessEngine, sweep_dead_letters: Function
) -> None:
    """The deploy may be what the run waits for; the alarm would look in ten minutes at worst."""
    run = engine.start("three", {"n": 1})
    leased = run_to_lease(engine, run.run_id)
    block = partial(
        lifecycle.block_attempt,
        rules=replace(engine.engine.rules, code_hash="of the code before"),
        fence=fence_of(leased),
        code=BlockCode.HANDLER_UNAVAILABLE,
        error=ErrorRecord(type="HandlerNotFoundError", code="handler_not_found", message="No."),
    )
    change_run(engine.engine, run.run_id, block)
    blocked = engine.show(run.run_id)

    sweep_dead_letters.post()

    assert (blocked.status, engine.show(run.run_id).status) == ("BLOCKED", "PENDING")


def run_to_lease(engine: InProcessEngine, run_id: str) -> Manifest:
    return arrive(engine.engine, Hint(run_id, 1)).answer.manifest
