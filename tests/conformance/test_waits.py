"""Waits for signals on both stores: senders and waiters at once, kills, and lost answers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from pydantic import BaseModel

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.attempt.values import load
from leasehold.domain.lease import fence_of
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.domain.result import SignalRequest as Wanted
from leasehold.errors import SignalNotAwaitedError, StoreUnavailableError
from leasehold.remote_workers.claim_step import acquire_run
from leasehold.remote_workers.manage_lease import LeaseCredentials, await_signal, complete_step
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import get_run
from leasehold.services.signal_run import SignalRequest, send_signal
from leasehold.services.start_run import StartRequest, start_run
from leasehold.services.sweep import sweep
from tests.worlds.catalogs import remote_step
from tests.worlds.engines import OpenEngine
from tests.worlds.wrapped import AnswerLost, Overtaken

pytestmark = [
    pytest.mark.sandboxed,
    pytest.mark.one_store,
    pytest.mark.catalog(__name__, PIPELINE_MIN_BACKOFF_S="0.01"),
]

#: How often a race is run: who wins is not ours to say.
ROUNDS = 6


class Approval(BaseModel):
    approved: bool


def ask(ctx: StepContext, given: Any) -> Any:
    """Wait for an approval; killed by what it is given, before or after it has it."""
    if given.get("dies") == "before" and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = ctx.wait_for("approval", Approval)
    if given.get("dies") == "after" and ctx.attempt == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"approved": answer.approved, "attempt": ctx.attempt}


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="ask",
            handler=f"{__name__}:ask",
            agent_timeout=timedelta(seconds=30),
            dispatch_deadline=timedelta(seconds=60),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="ask", steps=("ask",))])


@pytest.fixture
def remote(open_engine: OpenEngine) -> Engine:
    return open_engine(remote_step)


def begun(engine: Engine, pipeline: str = "ask", **given: Any) -> str:
    return start_run(engine, StartRequest(pipeline, given)).manifest.run_id


def send(engine: Engine, run_id: str, value: Any, signal_id: str | None = None) -> str:
    request = SignalRequest("approval", value, "ada", signal_id)
    return send_signal(engine, run_id, request)[0].outcome.value


def work(engine: Engine, run_id: str) -> str:
    """Make the next attempt; once more where a busy machine put it off."""
    outcome = "released"
    for _ in range(5):
        if outcome == "released":
            generation = get_run(engine, run_id).position.dispatch.generation
            outcome = execute_step(engine, Hint(run_id, generation))
    return outcome


def claimed(engine: Engine, run_id: str) -> LeaseCredentials:
    return LeaseCredentials(run_id, fence_of(acquire_run(engine, run_id, "vm-1").manifest))


def shown(run: Manifest) -> tuple[str, str | None]:
    return run.status.value, None if run.block is None else run.block.code


def test_a_handler_in_its_own_process_waits_and_is_given_the_signal(engine: Engine) -> None:
    run_id = begun(engine)
    assert work(engine, run_id) == "blocked"
    waiting = get_run(engine, run_id)

    assert send(engine, run_id, {"approved": True}) == "signalled"

    assert shown(waiting) == ("BLOCKED", "waiting")
    assert work(engine, run_id) == "completed"
    assert '"approved":true' in (get_run(engine, run_id).steps["ask"].output or "")


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_loses_no_wait_and_no_signal(engine: Engine, when: str) -> None:
    run_id = begun(engine, dies=when)
    outcomes = [work(engine, run_id)]
    while outcomes[-1] == "retry_scheduled":
        outcomes.append(work(engine, run_id))
    send(engine, run_id, {"approved": False})
    while outcomes[-1] != "completed" and len(outcomes) < 6:
        outcomes.append(work(engine, run_id))

    assert outcomes[-1] == "completed"
    assert '"approved":false' in (get_run(engine, run_id).steps["ask"].output or "")


@pytest.mark.each_store
def test_the_event_before_the_wait_and_the_wait_at_once_lose_nothing(remote: Engine) -> None:
    """The famous failure, as a race: both write one document, so the later one sees the other."""
    for _ in range(ROUNDS):
        run_id = begun(remote, "away")
        worker, both = claimed(remote, run_id), Barrier(2)

        def wait(worker: LeaseCredentials = worker, both: Barrier = both) -> None:
            both.wait()
            await_signal(remote, worker, Wanted("approval"))

        def tell(run_id: str = run_id, both: Barrier = both) -> None:
            both.wait()
            send(remote, run_id, {"approved": True})

        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(wait), threads.submit(tell)]:
                done.result()

        run = get_run(remote, run_id)
        assert run.status.value in ("PENDING", "IN_PROGRESS")
        if run.position.lease is None:
            worker = claimed(remote, run_id)
        found, _ = await_signal(remote, worker, Wanted("approval"))
        assert found is not None
        assert found.text == '{"approved":true}'
        assert complete_step(remote, worker, "1", "SUCCESS").outcome.value == "completed"


@pytest.mark.each_store
def test_senders_of_one_id_at_once_count_once(remote: Engine) -> None:
    run_id = begun(remote, "away")
    with ThreadPoolExecutor(4) as threads:
        sent = [threads.submit(send, remote, run_id, {"n": 1}, "n-1") for _ in range(8)]
        outcomes = [one.result() for one in sent]

    assert sorted(outcomes) == ["signal_kept"] + ["signal_known"] * 7
    assert len(get_run(remote, run_id).signals or ()) == 1


def test_a_sender_that_hears_no_answer_sends_again(remote: Engine) -> None:
    """The run has gone on with it by then: the same id counts once."""
    run_id = begun(remote, "away")
    await_signal(remote, claimed(remote, run_id), Wanted("approval"))
    deaf = replace(remote, documents=AnswerLost(remote.documents))
    with pytest.raises(StoreUnavailableError):
        send(deaf, run_id, {"approved": True}, "n-1")

    assert send(remote, run_id, {"approved": True}, "n-1") == "signal_known"
    found, _ = await_signal(remote, claimed(remote, run_id), Wanted("approval"))
    assert found is not None
    assert len(get_run(remote, run_id).signals or ()) == 1


def test_a_large_signal_whose_answer_is_lost_keeps_its_value(remote: Engine) -> None:
    """The run may refer to it by then."""
    run_id = begun(remote, "away")
    await_signal(remote, claimed(remote, run_id), Wanted("approval"))
    deaf = replace(remote, documents=AnswerLost(remote.documents))
    with pytest.raises(StoreUnavailableError):
        send(deaf, run_id, {"approved": True, "words": "x" * 100_000}, "n-1")

    (kept,) = get_run(remote, run_id).signals or ()
    assert kept.ref is not None
    assert remote.artifacts.exists(kept.ref)


def test_a_large_signal_that_is_refused_meanwhile_leaves_no_value_and_takes_no_other(
    remote: Engine,
) -> None:
    """Of two that are alike each has its own file: the run may still refer to the first one."""
    run_id = begun(remote, "away")
    value = {"approved": True, "words": "x" * 100_000}
    send(remote, run_id, value, "n-1")
    cancel = OperationRequest(Operation.CANCEL, actor="ada")
    late = overtaken(remote, lambda: operate(remote, run_id, cancel))

    with pytest.raises(SignalNotAwaitedError):
        send(late, run_id, value, "n-2")

    (kept,) = get_run(remote, run_id).signals or ()
    assert remote.artifacts.list(f"runs/{run_id}") == [kept.ref]


def test_a_signal_whose_room_others_take_meanwhile_lies_beside_the_run(remote: Engine) -> None:
    run_id = begun(remote, "away")

    def fill() -> None:
        for number in range(6):
            send(remote, run_id, f"{number}" * 31_000)

    late = overtaken(remote, fill)

    assert send(late, run_id, "x" * 31_000) == "signal_kept"
    *others, last = get_run(remote, run_id).signals or ()
    assert [one.ref for one in others] == [None] * 6
    assert load(remote.artifacts, last.value) == f'"{"x" * 31_000}"'


def overtaken(engine: Engine, do: Callable[[], object]) -> Engine:
    """The engine of a process that has looked at a run, and is overtaken before it writes."""
    return replace(engine, documents=Overtaken(engine.documents, "runs", do, before=1))


def test_a_remote_worker_that_hears_no_answer_asks_again(remote: Engine) -> None:
    """Its attempt ended with the first call; the second one is answered alike."""
    run_id = begun(remote, "away")
    worker = claimed(remote, run_id)
    outcomes = [await_signal(remote, worker, Wanted("approval"))[1] for _ in range(2)]

    assert [one and one.outcome.word for one in outcomes] == ["blocked", "blocked"]
    assert shown(get_run(remote, run_id)) == ("BLOCKED", "waiting")


def test_a_signal_that_a_remote_worker_refuses_is_dropped_and_its_step_waits_on(
    remote: Engine,
) -> None:
    run_id = begun(remote, "away")
    send(remote, run_id, "what?")
    worker = claimed(remote, run_id)
    found, _ = await_signal(remote, worker, Wanted("approval"))

    again, ended = await_signal(remote, worker, Wanted("approval", refused="It says nothing."))

    assert found is not None
    assert (again, ended and ended.outcome.word) == (None, "blocked")
    assert send(remote, run_id, "yes") == "signalled"


def test_a_signal_that_a_remote_step_has_is_not_given_to_the_next_one(remote: Engine) -> None:
    run_id = begun(remote, "far")
    send(remote, run_id, "yes")
    worker = claimed(remote, run_id)
    found, _ = await_signal(remote, worker, Wanted("approval"))
    complete_step(remote, worker, "1", "SUCCESS")

    later, ended = await_signal(remote, claimed(remote, run_id), Wanted("approval"))

    assert found is not None
    assert (later, ended and ended.outcome.word) == (None, "blocked")


def test_a_zombie_that_comes_back_takes_nothing(remote: Engine) -> None:
    run_id = begun(remote, "away")
    frozen = claimed(remote, run_id)
    await_signal(remote, frozen, Wanted("approval"))
    send(remote, run_id, {"approved": True})
    later = claimed(remote, run_id)

    found, ended = await_signal(remote, frozen, Wanted("approval", refused="I do not like it"))

    assert (found, ended and ended.changed) == (None, False)
    assert await_signal(remote, later, Wanted("approval"))[0] is not None


@pytest.mark.each_store
def test_a_sweep_reads_no_run_that_only_waits(remote: Engine) -> None:
    """What waits costs nothing: a sweep is given the runs alone whose time is over."""
    waiting = [begun(remote, "away") for _ in range(12)]
    for run_id in waiting:
        await_signal(remote, claimed(remote, run_id), Wanted("approval", timeout_s=86400.0))
    versions = [get_run(remote, run_id).updated_at for run_id in waiting]

    read = sweep(remote, among=waiting).documents_read - sweep(remote, among=()).documents_read

    assert read <= 0
    assert [get_run(remote, run_id).updated_at for run_id in waiting] == versions
