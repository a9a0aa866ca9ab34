"""Each reason gives the run up in the same words, by every component, on each store.

Time passes here by making what is stored older: that works on every store, and nothing sleeps.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PipelineEntry,
    Registry,
    StepDispatchEntry,
)
from leasehold.adapters.clock import SystemClock
from leasehold.bootstrap import boot
from leasehold.domain import lifecycle
from leasehold.domain.change import Change, Draft, on_run
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.children import ITEMS_MISSING
from leasehold.domain.effect import dispatch_task, owed_effects
from leasehold.domain.give_up_rules import Verdict
from leasehold.domain.lease import Fence
from leasehold.domain.lifecycle import BoundOperation, NewRun, Operation
from leasehold.domain.limit import Bound, Limit
from leasehold.domain.manifest import Manifest, run_ref, to_document
from leasehold.domain.manifest_parts import Block, ErrorRecord
from leasehold.domain.result import SignalRequest
from leasehold.domain.signal import Signal
from leasehold.domain.spend import Spend, SpendLimit
from leasehold.domain.status import BlockCode, DeadLetterReason
from leasehold.domain.stored import Write, replace
from leasehold.domain.timestamps import ClockStep
from leasehold.errors import (
    LeaseholdError,
    LeaseLostError,
    NotAllowedError,
    NothingToClaimError,
    SignalNotAwaitedError,
    VersionConflictError,
)
from leasehold.registry.dead_letters import DEAD_LETTERS
from leasehold.registry.pipelines import Catalog
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, release_step
from leasehold.services.audit import audit
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.execute_step import arrive as ask_for_the_lease
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.worlds.builders import at_position, let_pass
from tests.worlds.queues import SeenByAll
from tests.worlds.stores import DOCUMENTS

pytestmark = pytest.mark.one_store

HOUR: Final = timedelta(hours=1)
PRIVATE: Final = "what the input says"


def _step(name: str, handler: str, **limits: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=handler if handler == "remote" else f"tests.worlds.catalogs.sample:{handler}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        **limits,
    )


def refuse_output(ctx: GateContext, output: Any) -> None:
    """Refuse it, in words of two lines."""
    raise GatePolicyFailure("LINES-1", "There are\ntwo lines.", 'Say it in "one".')


def pipelines_of(*steps: StepDispatchEntry) -> Registry[PipelineEntry]:
    names = [step.step_type for step in steps]
    return Registry("pipelines", [PipelineEntry(name=name, steps=(name,)) for name in names])


def catalog(**limits: Any) -> Catalog:
    """One step a pipeline, of the same name."""
    steps = [
        _step("add", "add", **limits),
        _step("fail", "fail", **limits),
        _step("refuse", "refuse", **limits),
        _step("gated", "add", gates=("lines",), **limits),
        _step("away", "remote", schedule_to_start=HOUR, **limits),
    ]
    check = f"{__name__}:refuse_output"
    return Catalog(
        steps=Registry("dispatch", steps),
        gates=Registry("gates", [GateEntry(name="lines", check=check)]),
        pipelines=Registry(
            "pipelines",
            [PipelineEntry(name=one.step_type, steps=(one.step_type,)) for one in steps],
        ),
    )


@dataclass
class World:
    """An engine on its own store, what it reported, and what time makes of its runs."""

    engine: Engine
    deployed: Callable[..., Engine]
    redeployed: Callable[[Catalog], Engine]
    queue: SeenByAll
    reports: list[dict[str, Any]] = field(default_factory=list)

    def start(self, pipeline: str, n: int = 1) -> str:
        run = start_run(self.engine, StartRequest(pipeline, {"n": n, "note": PRIVATE})).manifest
        return run.run_id

    def run(self, run_id: str) -> Manifest:
        return get_run(self.engine, run_id)

    def hint(self, run_id: str, engine: Engine | None = None) -> str:
        """The task of the current dispatch comes."""
        generation = self.run(run_id).position.dispatch.generation
        return execute_step(engine or self.engine, Hint(run_id, generation)).value

    def lease(self, run_id: str) -> None:
        """A worker takes the step and is never heard of again."""
        ask_for_the_lease(self.engine, Hint(run_id, self.run(run_id).position.dispatch.generation))

    def write(self, run_id: str, update: Callable[[Manifest], Manifest]) -> None:
        document = to_document(update(self.run(run_id)))
        self.engine.documents.transact(run_ref(run_id), lambda _, __: Write(None, document))

    def wait(self, run_id: str, by: timedelta) -> None:
        """Let so much time pass for the run."""
        let_pass(self.engine.documents, run_id, by)

    def look(self, *run_ids: str) -> None:
        """A sweep comes, and gives nothing up."""
        assert sweep(self.engine, among=set(run_ids)).dead_lettered == 0
        self.queue.lose()

    def trace(self, run_id: str) -> list[dict[str, Any]]:
        return [event.model_dump() for event in timeline_of(self.engine, run_id)]


@pytest.fixture(params=DOCUMENTS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Two retries and one interruption are allowed."""
    reports: list[dict[str, Any]] = []
    with ExitStack() as stack:
        documents = stack.enter_context(DOCUMENTS[request.param](tmp_path))
        environ = {
            "LEASEHOLD_ISOLATION": "inline",  # how a run is given up is the same everywhere
            "LEASEHOLD_ARTIFACTS": f"file://{tmp_path}/artifacts",
            "PIPELINE_MAX_RETRIES": "2",
            "PIPELINE_MAX_INTERRUPTIONS": "1",
            "PIPELINE_RECOVERY_WINDOW_MS": "60000",
        }

        queue = SeenByAll(SystemClock())

        def redeployed(catalog: Catalog) -> Engine:
            bundle = boot(environ, catalog=catalog, documents=documents, tasks=queue)
            stack.callback(bundle.engine.leases.close)
            original = bundle.engine.listeners.report

            def report(facts: Any) -> None:
                reports.append(dict(facts))
                original(facts)

            return replace(bundle.engine, listeners=replace(bundle.engine.listeners, report=report))

        def deployed(**limits: Any) -> Engine:
            return redeployed(catalog(**limits))

        yield World(deployed(), deployed, redeployed, queue, reports)


# -- how each reason comes to be -----------------------------------------------------------------


def out_of_retries(world: World) -> str:
    """A deploy lowers the limit while the third attempt runs."""
    generous, run_id = world.deployed(max_retries=5), ""
    run_id = start_run(generous, StartRequest("fail", {"n": 1})).manifest.run_id
    for _ in range(2):
        assert world.hint(run_id, generous) == "retry_scheduled"
        world.wait(run_id, timedelta(minutes=5))
    assert world.hint(run_id) == "retry_scheduled"
    world.wait(run_id, timedelta(minutes=10))
    return run_id


def stuck(world: World) -> str:
    """Two workers in a row take the step and die."""
    run_id = world.start("add")
    world.lease(run_id)
    world.wait(run_id, timedelta(minutes=1))
    world.lease(run_id)
    assert world.run(run_id).position.interruptions == 1
    world.wait(run_id, timedelta(minutes=1))
    return run_id


def unrecovered(world: World) -> str:
    """It failed, and its tasks are lost for longer than the window, while sweeps run."""
    run_id = world.start("fail")
    assert world.hint(run_id) == "retry_scheduled"
    world.queue.lose()
    world.wait(run_id, timedelta(minutes=2))
    world.look(run_id)
    world.wait(run_id, timedelta(minutes=7))
    return run_id


def permanent(world: World) -> str:
    """A version before noted the failure as one that no retry repairs, and scheduled one."""
    run_id = world.start("fail")
    assert world.hint(run_id) == "retry_scheduled"
    world.wait(run_id, timedelta(minutes=10))

    def for_good(run: Manifest) -> Manifest:
        assert run.error is not None
        return replace(run, error=replace(run.error, permanent=True))

    world.write(run_id, for_good)
    return run_id


def never_claimed(world: World) -> str:
    """No worker elsewhere came for an hour in which the sweep ran."""
    return all_never_claimed(world, 1)[0]


def all_never_claimed(world: World, how_many: int) -> list[str]:
    """As `never_claimed`, of runs that each sweep looks at together."""
    runs = [world.start("away") for _ in range(how_many)]
    for _ in range(5):
        for run_id in runs:
            world.wait(run_id, timedelta(minutes=10))
        world.look(*runs)
    for run_id in runs:
        world.wait(run_id, timedelta(minutes=16))
    return runs


def comes(world: World, run_id: str) -> None:
    """The next attempt would begin: its task comes."""
    assert world.hint(run_id) == "dead_lettered"


def audits(world: World, run_id: str) -> None:
    """No attempt begins; a worker claims before a sweep."""
    assert [one.run_id for one in audit(world.engine, repair=True)] == [run_id]


@dataclass(frozen=True)
class Reason:
    """How a run gets there, who finds it at work, and what is said."""

    prepared: Callable[[World], str]
    inline: Callable[[World, str], None]
    detail: str
    retries: int


REASONS: Final = {
    DeadLetterReason.RETRIES_EXHAUSTED: Reason(
        out_of_retries,
        comes,
        "Step fail failed 3 of 3 times without progress; last: ValueError: fail cannot do 1",
        2,
    ),
    DeadLetterReason.STUCK_IN_PROGRESS: Reason(
        stuck,
        comes,
        "Step add was interrupted or lost its lease 2 times without progress; "
        "PIPELINE_MAX_INTERRUPTIONS allows 1.",
        0,
    ),
    DeadLetterReason.UNRECOVERED_ERROR: Reason(
        unrecovered,
        audits,
        "Step fail failed, and its next attempt was not begun within N s in which the sweep "
        "ran; the recovery window has N s.",
        0,
    ),
    DeadLetterReason.PERMANENT_FAILURE: Reason(permanent, comes, "ValueError: fail cannot do 1", 0),
    DeadLetterReason.NEVER_STARTED: Reason(
        never_claimed, audits, "No worker claimed step away within N s.", 0
    ),
}

#: What differs between two runs that are given up for the same reason: names, and times.
OWN: Final = {
    "runId",
    "life",
    "nonce",
    "lostSince",
    "shard",
    "leaseId",
    "sweepJobId",
    "bootstrapSeconds",
    "coldStart",
    "executionSeconds",
}


def common(value: Any) -> Any:
    """The stored documents, without the names and times of one run."""
    if isinstance(value, dict):
        kept = {k: common(v) for k, v in value.items() if k not in OWN and not _is_time(k)}
        return {key: one for key, one in kept.items() if one is not None}
    if isinstance(value, list | tuple):
        return [common(one) for one in value]
    if isinstance(value, str):
        value = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", value)
        value = re.sub(r"^runs/[^/]+/[0-9a-f]{8}/", "runs/RUN/", value)
        return re.sub(r"\b[\d.]+ s\b", "N s", value)
    return value


def _is_time(name: str) -> bool:
    return name.endswith("At") or name in ("at", "notBefore")


def test_every_reason_has_its_words() -> None:
    assert REASONS.keys() == set(DeadLetterReason)
    assert {entry.reason for entry in DEAD_LETTERS} == set(DeadLetterReason)
    for entry in DEAD_LETTERS:
        assert entry.label
        assert entry.severity in ("ERROR", "CRITICAL")
        assert entry.remediation.endswith(".")


@pytest.mark.parametrize(
    "reason",
    [  # one of them on each store, which keeps the fields of all alike
        pytest.param(one, marks=pytest.mark.each_store if one == "STUCK_IN_PROGRESS" else ())
        for one in DeadLetterReason
    ],
)
def test_inline_and_by_sweep_the_same_fields_are_written(
    world: World, reason: DeadLetterReason
) -> None:
    """From the same state: who finds it makes no difference, but for the name of the sweep."""
    wanted = REASONS[reason]
    inline = wanted.prepared(world)
    wanted.inline(world, inline)
    swept = wanted.prepared(world)

    answer = sweep(world.engine)

    assert (answer.dead_lettered, answer.by_reason) == (1, {reason.value: 1})
    runs = [world.run(run_id) for run_id in (inline, swept)]
    assert common(to_document(runs[0])) == common(to_document(runs[1]))
    for run in runs:
        assert (run.status, run.dead_lettered, run.dead_letter_reason) == ("ERROR", True, reason)
        assert common(run.dead_letter_detail) == wanted.detail
        assert run.dead_lettered_at is not None
        assert run.dead_lettered_at <= run.updated_at, "its archive was noted then"
        assert (run.position.lease, run.claimable, run.paused) == (None, None, False)
        assert (run.archive is None) == (not run.owed)
        heard_at = run.position.heartbeat_at
        assert run.alarm_at == (heard_at + HOUR if run.owed and heard_at else None)

    traces = [world.trace(run_id) for run_id in (inline, swept)]
    assert common(traces[0]) == common(traces[1])
    events = [trace[-1] for trace in traces]
    assert [event["type"] for event in events] == ["step_dead_lettered"] * 2
    for event, run in zip(events, runs, strict=True):
        assert (event["reason"], event["detail"]) == (reason, run.dead_letter_detail)
        assert (event["lastStep"], event["retryCount"]) == (run.current_step, wanted.retries)
    assert "sweepJobId" not in events[0]
    assert events[1]["sweepJobId"]

    reports = [facts for facts in world.reports if facts["event"] == "STEP_DEAD_LETTERED"]
    assert [facts["runId"] for facts in reports] == [inline, swept]
    assert [facts["sweepJobId"] for facts in reports] == [None, events[1]["sweepJobId"]]
    entry = DEAD_LETTERS[reason.value]
    for facts, run in zip(reports, runs, strict=True):
        assert facts["message"] == (
            f"run {run.run_id} is given up, {reason}: {run.dead_letter_detail}"
        )
        del facts["message"], facts["at"], facts["sweepJobId"]
        assert facts == {
            "severity": entry.severity,
            "reason": reason.value,
            "label": entry.label,
            "detail": run.dead_letter_detail,
            "remediation": entry.remediation,
            "lastStep": run.current_step,
            "retryCount": wanted.retries,
            "event": "STEP_DEAD_LETTERED",
            "runId": run.run_id,
            "pipeline": run.pipeline,
        }


# -- as users see it -----------------------------------------------------------------------------


def test_a_step_that_fails_once_too_often_is_given_up_by_its_own_settlement(world: World) -> None:
    run_id, outcomes = world.start("fail"), []
    for _ in range(3):
        outcomes.append(world.hint(run_id))
        world.wait(run_id, timedelta(minutes=5))

    run = world.run(run_id)
    assert outcomes == ["retry_scheduled", "retry_scheduled", "dead_lettered"]
    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert run.dead_letter_detail == (
        "Step fail failed 3 of 3 times without progress; last: ValueError: fail cannot do 1"
    )
    assert world.trace(run_id)[-1]["retryCount"] == 2


def test_a_permanent_error_gives_the_run_up_at_once(world: World) -> None:
    run_id = world.start("refuse")

    assert world.hint(run_id) == "dead_lettered"

    run = world.run(run_id)
    assert run.dead_letter_reason == "PERMANENT_FAILURE"
    assert run.dead_letter_detail == "PermanentError: the folder is gone"


def test_an_input_that_does_not_fit_any_more_gives_no_run_up(world: World) -> None:
    """It was stored by a version whose model took it; the next deploy may take it again."""
    run_id = world.start("add")
    world.write(run_id, lambda run: replace(run, input='{"n": "many"}'))

    assert world.hint(run_id) == "blocked"

    run = world.run(run_id)
    assert run.block is not None
    assert (run.block.code, run.dead_lettered, run.position.attempts.ended) == (
        "input_mismatch",
        False,
        0,
    )


def test_a_handler_that_is_not_there_gives_no_run_up(world: World) -> None:
    """The deploy that took the task has lost the handler."""
    run_id = world.start("add")
    step = _step("add", "no_such_handler")
    lost = Catalog(steps=Registry("dispatch", [step]), pipelines=pipelines_of(step))

    assert world.hint(run_id, replace(world.engine, catalog=lost)) == "blocked"

    run = world.run(run_id)
    assert run.block is not None
    assert (run.block.code, run.dead_lettered) == ("handler_unavailable", False)
    assert "no_such_handler" in run.block.finding


def remote_catalog() -> Catalog:
    """A deploy that gave the step add to remote workers."""
    step = _step("add", "remote")
    return Catalog(steps=Registry("dispatch", [step]), pipelines=pipelines_of(step))


def test_a_step_that_a_deploy_made_remote_waits_for_a_worker(world: World) -> None:
    """Its task was created before, and finds no handler: the run has not failed."""
    run_id = world.start("add")
    later = world.redeployed(remote_catalog())

    assert world.hint(run_id, later) == "awaits_claim"

    run = world.run(run_id)
    assert (run.claimable, run.dead_lettered, run.position.attempts.ended) == ("add", False, 0)
    claimed = acquire_run(later, run_id, "vm-1").manifest
    assert claimed.position.lease is not None
    assert [event["type"] for event in world.trace(run_id)] == [
        "run_started",
        "step_redispatched",
        "step_started",
    ]


def test_a_remote_step_that_a_worker_here_was_given_all_the_same_is_released(world: World) -> None:
    """No way leads there: this is the last line before a run would be given up for good."""
    run_id = world.start("add")

    assert world.hint(run_id, replace(world.engine, catalog=remote_catalog())) == "released"

    run = world.run(run_id)
    assert (run.dead_lettered, run.position.attempts.interrupted, run.status) == (
        False,
        1,
        "PENDING",
    )


def hang(world: World, run_id: str) -> None:
    """A worker takes the step, renews its lease past the deadline of 2 min, and ends nothing."""
    world.lease(run_id)
    world.wait(run_id, timedelta(minutes=6))

    def heard_of(run: Manifest) -> Manifest:
        assert run.position.lease is not None
        renewed_at = run.position.lease.acquired_at + timedelta(minutes=5)
        lease = replace(run.position.lease, expires_at=renewed_at + timedelta(seconds=30))
        return at_position(
            replace(run, alarm_at=lease.expires_at), heartbeat_at=renewed_at, lease=lease
        )

    world.write(run_id, heard_of)


@pytest.mark.parametrize("by", ["hint", "sweep"])
def test_a_step_that_hangs_each_time_is_given_up_after_its_retries(world: World, by: str) -> None:
    run_id, attempts = world.start("add"), 0
    while not world.run(run_id).dead_lettered:
        attempts += 1
        hang(world, run_id)
        if by == "hint":
            assert world.hint(run_id) in ("retry_scheduled", "dead_lettered")
        else:
            sweep(world.engine)
        world.wait(run_id, timedelta(seconds=45))

    run = world.run(run_id)
    assert (attempts, run.dead_letter_reason) == (3, "RETRIES_EXHAUSTED")
    assert (
        run.position.attempts.failed,
        run.position.attempts.expired,
        run.position.interruptions,
    ) == (3, 0, 0)
    assert run.error is not None
    assert (run.error.code, run.error.attempt) == ("dispatch_deadline_exceeded", 3)
    ends = [event for event in world.trace(run_id) if event["type"] == "step_terminated"]
    assert [(end["reason"], end["attempt"]) for end in ends] == [
        ("dispatch_deadline_exceeded", number) for number in (1, 2, 3)
    ]


def test_a_claim_of_a_step_that_hung_is_told_when_it_is_tried_again(world: World) -> None:
    run_id = world.start("away")
    acquire_run(world.engine, run_id, "vm-1")
    world.wait(run_id, timedelta(minutes=6))

    def heard_of(run: Manifest) -> Manifest:
        assert run.position.lease is not None
        return at_position(run, heartbeat_at=run.position.lease.acquired_at + timedelta(minutes=2))

    world.write(run_id, heard_of)
    with pytest.raises(NothingToClaimError, match="is tried again at"):
        acquire_run(world.engine, run_id, "vm-2")

    run = world.run(run_id)
    assert (run.position.attempts.failed, run.status, run.claimable) == (1, "ERROR", "away")


@pytest.mark.cover(2)
@pytest.mark.parametrize(
    "stops",
    [unrecovered, never_claimed],
    ids=["in ERROR", "for a remote worker"],
)
@pytest.mark.parametrize("off", [HOUR, 9 * HOUR, 90 * 24 * HOUR], ids=["hour", "night", "quarter"])
def test_time_off_gives_no_run_up(
    world: World, stops: Callable[[World], str], off: timedelta
) -> None:
    """Four runs that would be given up at the next look, had a sweep run in time.

    To them, the clock of a machine that is an hour ahead looks the same.
    """
    run_ids = [stops(world) for _ in range(4)]
    for run_id in run_ids:
        world.wait(run_id, off)

    answer = sweep(world.engine)

    assert answer.dead_lettered == 0
    for run_id in run_ids:
        run = world.run(run_id)
        assert not run.is_terminal
        if run.position.dispatch.remote:
            assert acquire_run(world.engine, run_id, "vm-1").manifest.position.lease is not None
        else:
            assert world.hint(run_id) == "retry_scheduled", "it is tried again, and fails again"


def test_a_late_caller_is_let_in(world: World) -> None:
    """A hint that arrives proves a queue that delivers, and a claim a worker."""
    late, unclaimed = unrecovered(world), never_claimed(world)

    assert world.hint(late) == "retry_scheduled"
    assert acquire_run(world.engine, unclaimed, "vm-1").manifest.position.lease is not None


def test_outage_after_outage_cuts_a_step_short_and_gives_no_run_up(world: World) -> None:
    """One interruption is allowed, and one silence."""
    run_id = world.start("add")
    for _ in range(12):
        world.lease(run_id)
        world.wait(run_id, HOUR)
        sweep(world.engine)

    run = world.run(run_id)
    assert (run.status, run.position.attempts.expired, run.position.interruptions) == (
        "PENDING",
        12,
        0,
    )


def test_the_second_silence_while_the_sweep_ran_gives_a_run_up(world: World) -> None:
    patient = replace(world.engine.rules, max_interruptions=10, stuck_timeout=timedelta(minutes=5))
    world.engine = replace(world.engine, rules=patient)
    run_id = world.start("add")
    ask_for_the_lease(world.engine, Hint(run_id, 1))
    run = world.run(run_id)
    assert run.position.lease is not None
    release_step(
        world.engine,
        LeaseCredentials(run_id, Fence(run.position.lease.lease_id, run.fencing_token)),
    )
    states = []

    for _ in range(2):
        world.lease(run_id)
        world.wait(run_id, timedelta(minutes=8))
        sweep(world.engine)
        run = world.run(run_id)
        states.append((run.position.silences, run.position.interruptions, run.dead_lettered))

    assert states == [(1, 2, False), (2, 3, True)]
    assert run.dead_letter_reason == "STUCK_IN_PROGRESS"
    assert common(run.dead_letter_detail) == (
        "Step add was not heard of for N s, for the second time without progress."
    )


def test_tasks_that_are_lost_again_and_again_end_a_run_that_never_started(world: World) -> None:
    """Not one lease: there is no attempt that could find it inline."""
    run_id = world.start("add")
    losing = replace(world.engine, tasks=NoTasks())
    outcomes = []
    for _ in range(2):
        world.wait(run_id, timedelta(minutes=2))
        swept = sweep(losing)
        outcomes.append((swept.redispatched, swept.dead_lettered))

    run = world.run(run_id)
    assert outcomes == [(1, 0), (0, 1)]
    assert run.dead_letter_reason == "NEVER_STARTED"
    assert run.dead_letter_detail == "2 tasks of step add were lost before one got the lease."
    assert (run.position.attempts.ended, run.fencing_token) == (0, 0)


def test_a_paused_run_is_not_given_up_however_long_it_is_paused(world: World) -> None:
    """Time parked does not count, as people pause and as they resume."""
    words: dict[str, Any] = {"rules": world.engine.rules, "actor": "ada", "reason": "leave"}
    run_id = world.start("fail")
    world.hint(run_id)
    change(world, run_id, partial(lifecycle.pause, **words))
    world.wait(run_id, 24 * HOUR)

    swept = sweep(world.engine)
    change(world, run_id, partial(lifecycle.resume, **words))

    assert (swept.documents_read, swept.dead_lettered) == (0, 0)
    assert world.hint(run_id) == "retry_scheduled"
    assert world.run(run_id).position.attempts.failed == 2


# -- written once --------------------------------------------------------------------------------


class NoTasks:
    """A queue that loses what it takes."""

    def create(self, task: Any) -> None:
        """Lose it."""

    def exists(self, _: Any) -> bool:
        return False


def change(world: World, run_id: str, transition: Callable[[Manifest, datetime], Change]) -> Change:
    decide = on_run(run_id, transition)
    return world.engine.documents.transact(run_ref(run_id), decide).answer


def on_the_dead(run: Manifest, engine: Engine) -> dict[str, tuple[Any, Any]]:
    """Every transition, and what it answers or raises on a run that was given up."""
    any_bound = Bound(Limit("k"), "k", is_rate=False, most=1)
    rules: dict[str, Any] = {"rules": engine.rules}
    fence = rules | {"fence": Fence("lease-1", run.fencing_token)}
    words = rules | {"actor": "ada", "reason": "why not"}
    approval = BoundOperation("call-1", Operation.APPROVE, "ada")
    lease = rules | {"lease_id": "lease-9", "holder": "host-b"}
    task = rules | {"generation": run.position.dispatch.generation, "in_queue": False}
    error = ErrorRecord(type="E", code="c", message="m")
    found = Block(code="C", finding="f", remediation="r")
    kept: dict[str, Any] = {
        "iteration_count": 9,
        "phase": "p",
        "partial_results": KeptValue(text="1"),
    }
    never = Verdict(DeadLetterReason.NEVER_STARTED, "again")
    output = KeptValue(text="1")
    sent = Signal(name="approval", id="s-1", at=run.updated_at, inline="1")
    step = ClockStep(timedelta(hours=1), since=run.updated_at + timedelta(hours=1), noticed_at=0.0)
    start: dict[str, Any] = {
        "new": NewRun(run.run_id, run.pipeline, run.plan, output, "other", "nonce"),
    }
    generation: dict[str, Any] = {"generation": run.position.dispatch.generation}
    return {
        "arrive": (partial(lifecycle.arrive, **lease, **generation), "dead_lettered"),
        "claim": (partial(lifecycle.claim, **lease), NothingToClaimError),
        "renew": (partial(lifecycle.renew, **fence), LeaseLostError),
        "checkpoint": (partial(lifecycle.checkpoint, **fence, **kept), LeaseLostError),
        "continue_later": (partial(lifecycle.continue_later, **fence), LeaseLostError),
        "complete": (partial(lifecycle.complete, **fence, output=output), LeaseLostError),
        "fail": (partial(lifecycle.fail, **fence, error=error, permanent=True), LeaseLostError),
        "exceed_limit": (
            partial(lifecycle.exceed_limit, **fence, reason="r", error=error),
            LeaseLostError,
        ),
        "wait_for": (
            partial(lifecycle.wait_for, **fence, wanted=SignalRequest("approval")),
            LeaseLostError,
        ),
        "signal": (
            partial(lifecycle.signal, **rules, sent=sent, actor="ann", known=None),
            SignalNotAwaitedError,
        ),
        "exceed_budget": (partial(lifecycle.exceed_budget, **fence, detail="d"), LeaseLostError),
        "block": (
            partial(lifecycle.block, **fence, output=output, output_status="S", found=found),
            LeaseLostError,
        ),
        "block_attempt": (
            partial(
                lifecycle.block_attempt,
                **fence,
                code=BlockCode.HANDLER_UNAVAILABLE,
                error=error,
            ),
            LeaseLostError,
        ),
        "look_again": (partial(lifecycle.look_again, **rules, at_once=True), "not_due"),
        "defer": (
            partial(lifecycle.defer, **fence, reason="r", detail="d"),
            LeaseLostError,
        ),
        "extend_wait": (
            partial(lifecycle.extend_wait, **rules, generation=1),
            "moved_on",
        ),
        "release": (partial(lifecycle.release, **fence, reason="r"), LeaseLostError),
        "expire": (
            partial(lifecycle.expire, **rules, lease_id="lease-1", holder_gone=True),
            "moved_on",
        ),
        "reject_checkpoint": (
            partial(lifecycle.reject_checkpoint, **fence, rejected=None, why="w"),
            LeaseLostError,
        ),
        "record_call": (partial(lifecycle.record_call, **fence, spend=Spend()), LeaseLostError),
        "await_slot": (
            partial(lifecycle.await_slot, **fence, bound=any_bound),
            LeaseLostError,
        ),
        "call_run": (partial(lifecycle.call_run, **rules, name="k at once"), "moved_on"),
        "note_archive": (
            partial(lifecycle.note_archive, **rules, life=run.life, failed={}, is_over=True),
            "archive_owed" if run.owed else "moved_on",
        ),
        "release_hold": (partial(lifecycle.release_hold, **rules, pause="p"), "moved_on"),
        "redispatch": (partial(lifecycle.redispatch, **task), "moved_on"),
        "not_created": (
            partial(lifecycle.not_created, **rules, generation=1, lost=0),
            "moved_on",
        ),
        "on_alarm": (partial(lifecycle.on_alarm, **task), "not_due"),
        "on_audit": (partial(lifecycle.on_audit, **task), "in_order"),
        "dead_letter": (
            lambda m, now: lifecycle.dead_letter(Draft(m, now, engine.rules), never),
            "dead_lettered",
        ),
        "pause": (partial(lifecycle.pause, **words), NotAllowedError),
        "resume": (partial(lifecycle.resume, **words), NotAllowedError),
        "cancel": (partial(lifecycle.cancel, **words), NotAllowedError),
        "retry": (partial(lifecycle.retry, **words), NotAllowedError),
        "approve": (partial(lifecycle.approve, **words), NotAllowedError),
        "on_request": (
            lifecycle.on_request(approval, partial(lifecycle.approve, **words)),
            NotAllowedError,
        ),
        "request_stack": (
            partial(lifecycle.request_stack, **rules, actor="ann"),
            NotAllowedError,
        ),
        "start": (partial(lifecycle.start, **rules, **start), LeaseholdError),
        "purge": (partial(lifecycle.purge, ended_before=run.ended_at), NotAllowedError),
        "begin_children": (
            partial(lifecycle.begin_children, **fence, kind="each", items=1, runs=()),
            LeaseLostError,
        ),
        "block_gathering": (
            partial(lifecycle.block_gathering, **fence, finding="f", code=ITEMS_MISSING),
            LeaseLostError,
        ),
        "ask_again": (partial(lifecycle.ask_again, **rules), "moved_on"),
        "gather": (partial(lifecycle.gather, **rules, asked=None), "moved_on"),
        "block_at_children": (
            partial(lifecycle.block_at_children, **rules, asked=None, finding="f"),
            "moved_on",
        ),
        "hear": (
            partial(lifecycle.hear, **rules, parent_id="r-1", word=1, say="cancel"),
            "moved_on",
        ),
        "note_told": (partial(lifecycle.note_told, **rules, word=1), "moved_on"),
        "give_budget": (
            partial(lifecycle.give_budget, **rules, **generation, share=SpendLimit(usd=1.0)),
            "moved_on",
        ),
        "take_items": (
            partial(lifecycle.take_items, **rules, run_id="l-1", nonce="n"),
            "moved_on",
        ),
        "follow_clock": (partial(lifecycle.follow_clock, **rules, step=step), "in_order"),
        "then_arrive": (
            lifecycle.then_arrive(partial(lifecycle.arrive, **lease, **generation), **lease),
            "dead_lettered",
        ),
    }


#: What the lifecycle exports that is no transition on a run; `recreate` has a test of its own.
NO_TRANSITIONS: Final = {
    "ALLOWED", "Breach", "NewRun", "Operation", "BoundOperation", "breaches", "check_again",
    "check_allowed", "decisions", "first_time", "is_allowed", "is_purgeable",
    "begins_at", "goes_on", "has_items", "has_own_work", "recreate", "repeat_of",
    "time_in_future", "wants_budget", "with_skips",
}  # fmt: skip


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # a rule of the domain
@pytest.mark.parametrize("reason", DeadLetterReason)
def test_no_transition_touches_a_run_that_was_given_up(
    world: World, reason: DeadLetterReason
) -> None:
    run_id = REASONS[reason].prepared(world)
    assert sweep(world.engine).dead_lettered == 1
    dead, trace = world.run(run_id), world.trace(run_id)
    reports = len(world.reports)
    transitions = on_the_dead(dead, world.engine)
    assert transitions.keys() == set(lifecycle.__all__) - NO_TRANSITIONS

    for name, (transition, expected) in transitions.items():
        if isinstance(expected, str):
            answer = change(world, run_id, transition)
            assert (answer.outcome, answer.changed) == (expected, False), name
            assert answer.owed == owed_effects(dead), name
        else:
            with pytest.raises(expected):
                change(world, run_id, transition)
        assert world.run(run_id) == dead, name
    assert world.hint(run_id) == "dead_lettered"
    assert sweep(world.engine).documents_read == 0

    assert world.trace(run_id) == trace
    assert len(world.reports) == reports


def test_a_settlement_that_is_said_again_gets_its_answer_and_changes_nothing(world: World) -> None:
    run_id = world.start("refuse")
    world.hint(run_id)
    dead = world.run(run_id)
    last = dead.position.last_settlement
    assert last is not None
    fence = Fence(last.lease_id, last.fencing_token or 0)
    complete = partial(
        lifecycle.complete, rules=world.engine.rules, fence=fence, output=KeptValue(text="1")
    )

    answer = change(world, run_id, complete)

    assert (answer.outcome, answer.changed) == ("dead_lettered", False)
    assert world.run(run_id) == dead


def test_a_run_that_was_given_up_can_only_be_recreated(world: World) -> None:
    run_id = REASONS[DeadLetterReason.STUCK_IN_PROGRESS].prepared(world)
    sweep(world.engine)
    dead = world.run(run_id)
    new = NewRun("r-new", dead.pipeline, dead.plan, KeptValue(text='{"n":1}'), "digest", "nonce")
    recreate = partial(
        lifecycle.recreate,
        rules=world.engine.rules,
        actor="ada",
        reason="mended",
        from_step="add",
        new=new,
    )

    change(world, run_id, recreate)

    lineage = ("recreated_as", "updated_at", "traced", "alarm_at")
    after = world.run(run_id)
    assert replace(after, **{name: getattr(dead, name) for name in lineage}) == dead
    assert after.recreated_as == ("r-new",)
    assert world.hint("r-new") == "completed"


# -- two at once ---------------------------------------------------------------------------------


@pytest.mark.each_store
def test_two_sweeps_at_once_give_each_run_up_once(world: World) -> None:
    runs = all_never_claimed(world, 4)

    with ThreadPoolExecutor(3) as threads:
        swept = list(threads.map(lambda _: sweep(world.engine), range(3)))

    assert sum(one.dead_lettered for one in swept) == 4
    assert sorted(facts["runId"] for facts in world.reports) == sorted(runs)
    for run_id in runs:
        events = [event["type"] for event in world.trace(run_id)]
        assert events.count("step_dead_lettered") == 1


@pytest.mark.each_store
def test_two_sweeps_at_once_give_each_lost_task_one_successor(world: World) -> None:
    runs = [world.start("add") for _ in range(6)]
    for run_id in runs:
        world.wait(run_id, timedelta(minutes=2))
    losing = replace(world.engine, tasks=NoTasks())

    with ThreadPoolExecutor(3) as threads:
        swept = list(threads.map(lambda _: sweep(losing), range(3)))

    assert sum(one.redispatched for one in swept) == 6
    assert [world.run(run_id).position.dispatch.generation for run_id in runs] == [2] * 6


@pytest.mark.each_store
def test_a_sweep_that_read_before_a_worker_came_changes_nothing(world: World) -> None:
    """The stored document has changed since it was found."""
    run_id = never_claimed(world)
    seen = world.engine.documents.get(run_ref(run_id))
    assert seen is not None
    world.write(
        run_id, lambda run: at_position(run, dispatch=replace(run.position.dispatch, generation=2))
    )
    on_alarm = partial(lifecycle.on_alarm, rules=world.engine.rules, generation=1, in_queue=False)

    with pytest.raises(VersionConflictError):
        world.engine.documents.transact(run_ref(run_id), on_run(run_id, on_alarm), if_version=seen)


# -- what it costs, and what is in its queue -----------------------------------------------------


@pytest.mark.each_store
def test_what_is_not_due_costs_nothing(world: World) -> None:
    for _ in range(3):
        world.start("add")
    due = never_claimed(world)

    swept = sweep(world.engine)

    assert (swept.documents_read, swept.dead_lettered, swept.more) == (1, 1, False)
    assert world.run(due).dead_lettered


def test_what_waits_in_its_queue_is_left_there_by_every_sweep(world: World) -> None:
    """In-process, what was started is in the queue of this engine until it runs it."""
    runs = [world.start("add") for _ in range(3)]

    for _ in range(4):
        for run_id in runs:
            world.wait(run_id, timedelta(minutes=2))
        swept = sweep(world.engine)
        assert (swept.documents_read, swept.redispatched, swept.dead_lettered) == (3, 0, 0)

    for run_id in runs:
        run = world.run(run_id)
        assert (run.position.dispatch.generation, run.position.dispatch.redispatched) == (1, 0)
        assert world.engine.tasks.exists(dispatch_task(run))
        assert world.hint(run_id) == "completed"


def test_a_task_that_was_never_created_is_created(world: World) -> None:
    """The caller that started the run died after its commit."""
    starter = replace(world.engine, tasks=NoTasks())
    run_id = start_run(starter, StartRequest("add", {"n": 1})).manifest.run_id
    world.wait(run_id, timedelta(minutes=2))

    swept = sweep(world.engine)

    run = world.run(run_id)
    assert (swept.redispatched, run.position.dispatch.generation) == (1, 2)
    assert world.engine.tasks.exists(dispatch_task(run))
    assert world.hint(run_id) == "completed"


# -- the log -------------------------------------------------------------------------------------


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[tuple[str, dict[str, Any]]]:
    lines = [one.getMessage() for one in caplog.records if one.name == "leasehold.events"]
    found = [(line, json.loads(line)) for line in lines]
    return [(line, facts) for line, facts in found if facts["event"] == event]


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # no store writes the log
@pytest.mark.parametrize("reason", DeadLetterReason)
def test_a_dead_letter_is_one_line_of_json_without_secrets(
    world: World, caplog: pytest.LogCaptureFixture, reason: DeadLetterReason
) -> None:
    run_id = REASONS[reason].prepared(world)
    before = world.run(run_id)
    with caplog.at_level(logging.INFO, "leasehold.events"):
        sweep(world.engine)

    ((line, facts),) = logged(caplog, "STEP_DEAD_LETTERED")
    assert len(line.splitlines()) == 1
    assert (facts["runId"], facts["reason"]) == (run_id, reason.value)
    assert facts["remediation"] == DEAD_LETTERS[reason.value].remediation
    hidden = [PRIVATE, before.position.dispatch.nonce, before.input_digest]
    hidden += (
        []
        if before.position.lease is None
        else [before.position.lease.lease_id, before.position.lease.holder]
    )
    assert [secret for secret in hidden if secret in line] == []


def test_an_error_of_many_lines_is_one_line_of_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = permanent(world)
    words = 'a "quoted"\nword,\r\nan é and \u2028 what splits lines'

    def spoken(run: Manifest) -> Manifest:
        assert run.error is not None
        return replace(run, error=replace(run.error, message=words))

    world.write(run_id, spoken)
    with caplog.at_level(logging.INFO, "leasehold.events"):
        sweep(world.engine)

    ((line, facts),) = logged(caplog, "STEP_DEAD_LETTERED")
    assert not {"\n", "\r"} & set(line)
    assert facts["detail"] == f"ValueError: {words}"


def test_a_gate_that_blocks_is_one_line_of_json_without_secrets(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = world.start("gated")
    nonce = world.run(run_id).position.dispatch.nonce
    with caplog.at_level(logging.INFO, "leasehold.events"):
        assert world.hint(run_id) == "blocked"
        assert world.hint(run_id) == "blocked"

    ((line, facts),) = logged(caplog, "GATE_BLOCKED")
    assert len(line.splitlines()) == 1
    assert nonce not in line
    assert PRIVATE not in line
    assert facts.pop("at")
    assert facts == {
        "severity": "WARNING",
        "message": f"run {run_id} is blocked by LINES-1: There are\ntwo lines.",
        "step": "gated",
        "generation": 2,
        "checkId": "LINES-1",
        "finding": "There are\ntwo lines.",
        "remediation": 'Say it in "one".',
        "event": "GATE_BLOCKED",
        "runId": run_id,
        "pipeline": "gated",
    }
