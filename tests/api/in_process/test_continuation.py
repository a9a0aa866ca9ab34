"""Steps that take longer than an attempt may: a chain of dispatches, on the embedded engine."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from leasehold import (
    AgentClientError,
    ContinuedError,
    Manifest,
    PipelineEntry,
    Registry,
    SoftTimeoutError,
    StepContext,
    StepDispatchEntry,
    TraceEvent,
    testing,
)
from leasehold.domain.status import Termination
from leasehold.registry.pipelines import Catalog
from leasehold.testing import FrozenClock, InProcessEngine

#: How often each iteration of a run was made.
DONE: Counter[tuple[str, int]] = Counter()


def _iterations(ctx: StepContext) -> list[int]:
    return list(ctx.resume.partial_results) if ctx.resume else []


def three_hours(ctx: StepContext, given: Any) -> Any:
    """Make 36 iterations of five minutes each."""
    done = _iterations(ctx)
    while len(done) < 36:
        ctx.wait_or_shutdown(300)
        done.append(len(done))
        DONE[ctx.run_id, done[-1]] += 1
        ctx.checkpoint(len(done), done)
    return {"done": done, "attempt": ctx.attempt}


async def three_hours_later(ctx: StepContext, given: Any) -> Any:
    """Do the same in a coroutine."""
    done = _iterations(ctx)
    while len(done) < 36:
        await ctx.await_or_shutdown(300)
        done.append(len(done))
        DONE[ctx.run_id, done[-1]] += 1
        await ctx.acheckpoint(len(done), done)
    return {"done": done, "attempt": ctx.attempt}


def once_each(ctx: StepContext, given: Any) -> Any:
    """Make one iteration an attempt, and ask for the next one."""
    done = _iterations(ctx)
    if len(done) == given:
        return done
    done.append(ctx.attempt)
    ctx.checkpoint(len(done), done)
    return ctx.continue_later()


def never(ctx: StepContext, given: Any) -> Any:
    """Ask for the next attempt, and do nothing."""
    ctx.continue_later()


def in_a_pool(ctx: StepContext, given: Any) -> Any:
    if ctx.attempt > 1:
        return "done"
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ctx.continue_later).result()


def in_a_bare_thread(ctx: StepContext, given: Any) -> Any:
    """Ask for it where it has no effect."""

    def ask() -> None:
        with contextlib.suppress(ContinuedError):
            ctx.continue_later()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return f"attempt {ctx.attempt}"


async def in_a_coroutine(ctx: StepContext, given: Any) -> Any:
    if ctx.attempt == 1:
        ctx.continue_later()
    return "done"


async def _asks(ctx: StepContext) -> None:
    await asyncio.sleep(0)
    ctx.continue_later()


async def in_tasks(ctx: StepContext, given: Any) -> Any:
    if ctx.attempt > 1:
        return "done"
    async with asyncio.TaskGroup() as group:
        group.create_task(_asks(ctx))
        group.create_task(_asks(ctx))
    return "never"


async def in_tasks_one_of_which_fails(ctx: StepContext, given: Any) -> Any:
    async def fails() -> None:
        raise ValueError("the other one")

    if ctx.attempt > 1:
        return "done"
    async with asyncio.TaskGroup() as group:
        group.create_task(_asks(ctx))
        group.create_task(fails())
    return "never"


def swallowed(ctx: StepContext, given: Any) -> Any:
    with contextlib.suppress(BaseException):
        ctx.continue_later()
    return f"attempt {ctx.attempt}"


def lost_in_a_finally(ctx: StepContext, given: Any) -> Any:
    if ctx.attempt > 1:
        return "done"
    try:
        ctx.continue_later()
    finally:
        raise ValueError("cannot clean up")


def often_disturbed(ctx: StepContext, given: Any) -> Any:
    """Read 200 items; the provider fails once before every 25th."""
    items = ctx.checkpointed(range(200), every=given)
    for item in items:
        DONE[ctx.run_id, item] += 1
        if item % 25 == 24 and DONE[ctx.run_id, item] == 1:
            raise AgentClientError("overloaded")
        items.results.append(item)
    return items.results


def in_a_callback(ctx: StepContext, given: Any) -> Any:
    """Ask for it where the attempt is to stop anyway."""
    if ctx.attempt > 1:
        return "done"
    ctx.on_stop(ctx.continue_later)
    ctx.checkpoint(1, "kept")
    raise RuntimeError("asked to stop")


def when_stopped(ctx: StepContext, given: Any) -> Any:
    """Ask for it when the attempt is to stop."""
    if ctx.attempt > 1:
        return "done"
    ctx.checkpoint(1, "kept")
    return ctx.continue_later()


def one_late_checkpoint(ctx: StepContext, given: Any) -> Any:
    """Work for 20 of 30 minutes, keep that, and be ready in a moment."""
    text = ctx.resume.partial_results if ctx.resume else ""
    if not text:
        ctx.wait_or_shutdown(1200)
        DONE[ctx.run_id, 0] += 1
        ctx.checkpoint(1, "made")
    return f"attempt {ctx.attempt}"


def early_checkpoints(ctx: StepContext, given: Any) -> Any:
    """Keep something every minute for ten minutes of thirty."""
    done = _iterations(ctx)
    while len(done) < 10:
        ctx.wait_or_shutdown(60)
        done.append(len(done))
        ctx.checkpoint(len(done), done)
    return f"attempt {ctx.attempt}"


def begins_anew(ctx: StepContext, given: Any) -> Any:
    """Keep values that are never read."""
    for number in range(1, 6):
        ctx.wait_or_shutdown(300)
        DONE[ctx.run_id, number] += 1
        ctx.checkpoint(number, None)
    return f"attempt {ctx.attempt}"


def looks_and_begins_anew(ctx: StepContext, given: Any) -> Any:
    """Look at what was kept, and do all of it again."""
    ctx.log.info("%s", ctx.resume)
    return begins_anew(ctx, given)


def keeps_while_it_fails(ctx: StepContext, given: Any) -> Any:
    """Fail when the time is short, and keep what there is all the same."""
    if ctx.resume:
        return ctx.resume.partial_results
    ctx.wait_or_shutdown(1500)
    try:
        raise ValueError("a page that nobody can read")
    finally:
        ctx.checkpoint(1, "kept")


def keeps_in_a_thread(ctx: StepContext, given: Any) -> Any:
    """Have its own thread keep what there is, when the time is short."""
    if ctx.resume:
        return "resumed"
    ctx.wait_or_shutdown(1500)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ctx.checkpoint, 1, "kept").result()
    return f"attempt {ctx.attempt}"


def keeps_until_it_is_late(ctx: StepContext, given: Any) -> Any:
    """Catch all that is raised, and go on past the end of its time."""
    done = _iterations(ctx)
    if ctx.attempt > 1:
        return "done"
    for number in range(len(done) + 1, 100):
        ctx.wait_or_shutdown(60)
        with contextlib.suppress(BaseException):
            ctx.checkpoint(number, [])
    return "never"


def continues_at_its_limit(ctx: StepContext, given: Any) -> Any:
    """Ask for the next attempt at the soft limit."""
    if ctx.resume:
        return ctx.resume.partial_results
    try:
        threading.Event().wait()
    except SoftTimeoutError:
        ctx.checkpoint(1, f"kept by attempt {ctx.attempt}")
    return ctx.continue_later()


def two_loops(ctx: StepContext, given: Any) -> Any:
    """Make 36 iterations of five minutes, and then ten of one."""
    read = ctx.checkpointed(range(36), phase="read")
    for number in read:
        ctx.wait_or_shutdown(300)
        DONE[ctx.run_id, number] += 1
        read.results.append(number)
    write = ctx.checkpointed(read.results[:10], phase="write")
    for number in write:
        ctx.wait_or_shutdown(60)
        DONE[ctx.run_id, 100 + number] += 1
        write.results.append(-number)
    return {"read": read.results, "write": write.results}


async def two_loops_later(ctx: StepContext, given: Any) -> Any:
    """Do the same in a coroutine."""
    read = ctx.acheckpointed(range(36), phase="read")
    async for number in read:
        await ctx.await_or_shutdown(300)
        DONE[ctx.run_id, number] += 1
        read.results.append(number)
    write = ctx.acheckpointed(read.results[:10], phase="write")
    async for number in write:
        await ctx.await_or_shutdown(60)
        DONE[ctx.run_id, 100 + number] += 1
        write.results.append(-number)
    return {"read": read.results, "write": write.results}


HANDLERS = (
    two_loops,
    two_loops_later,
    three_hours,
    three_hours_later,
    often_disturbed,
    once_each,
    never,
    in_a_pool,
    in_a_bare_thread,
    in_a_coroutine,
    in_tasks,
    in_tasks_one_of_which_fails,
    swallowed,
    lost_in_a_finally,
    in_a_callback,
    when_stopped,
    one_late_checkpoint,
    early_checkpoints,
    begins_anew,
    looks_and_begins_anew,
    keeps_in_a_thread,
    keeps_while_it_fails,
    keeps_until_it_is_late,
    continues_at_its_limit,
)


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=29),
        dispatch_deadline=timedelta(minutes=30),
        heartbeat_interval=timedelta(minutes=5),
    )


STEPS = Registry("dispatch", [_entry(one.__name__) for one in HANDLERS])
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=one.__name__, steps=(one.__name__,)) for one in HANDLERS]
)
CATALOG = Catalog(steps=STEPS, pipelines=PIPELINES)

#: Leases that are renewed every five minutes: each renewal in the hours that pass here is a write.
SETTINGS = {"PIPELINE_LEASE_TTL_S": "900"}
pytestmark = pytest.mark.catalog(CATALOG, **SETTINGS)


def played(engine: InProcessEngine, step: str, given: Any = None) -> tuple[Manifest, list[str]]:
    """Run a step to its end; return the run, and what was stored of each attempt."""
    run = engine.run_until_settled(engine.start(step, given).run_id)
    return run, [told(event) for event in engine.trace(run.run_id)[2:-2]]


def told(event: TraceEvent) -> str:
    facts = event.model_extra or {}
    return f"{event.type} {event.attempt} {facts.get('iterationCount', event.reason or '-')}"


@pytest.mark.parametrize("step", ["three_hours", "three_hours_later"])
def test_a_step_of_three_hours_is_a_chain_of_dispatches(engine: InProcessEngine, step: str) -> None:
    """Each ends within its half an hour; every iteration is made once, and no retry is used up."""
    begun = engine.clock.now()

    run, trace = played(engine, step)

    assert engine.clock.now() - begun == timedelta(hours=3)
    assert engine.output(run.run_id) == {"done": [*range(36)], "attempt": 8}
    assert {number: DONE[run.run_id, number] for number in range(36)} == dict.fromkeys(range(36), 1)
    assert (
        run.position.attempts.continued,
        run.position.attempts.ended,
        run.position.dispatch.generation,
    ) == (7, 7, 8)
    assert run.position.continuations == 0  # since the last iteration
    ends = [5, 10, 15, 20, 25, 30, 35]
    assert trace == [
        line
        for attempt, count in enumerate(ends, 1)
        for line in (
            f"step_continued {attempt} {count}",
            f"checkpoint_resumed {attempt + 1} {count}",
        )
    ]
    events = engine.trace(run.run_id)
    ends = [event.at for event in events if event.type == "step_continued"]
    begins = [events[1].at, *(event.at for event in events if event.type == "checkpoint_resumed")]
    assert all(
        end - begin < timedelta(minutes=29) for begin, end in zip(begins, ends, strict=False)
    )


@pytest.mark.parametrize("every", [1, 60])
def test_a_long_loop_with_an_error_now_and_then_comes_to_its_end(
    engine: InProcessEngine, every: int
) -> None:
    """Every attempt advances, so none of the five retries is used up for long.

    However seldom it keeps a checkpoint, no item is done again but those that raised.
    """
    run, _ = played(engine, "often_disturbed", every)

    assert engine.output(run.run_id) == [*range(200)]
    assert (run.position.attempts.failed, run.position.failures) == (8, 0)
    made = {item: DONE[run.run_id, item] for item in range(200)}
    assert made == {item: 2 if item % 25 == 24 else 1 for item in range(200)}


def test_a_worker_takes_the_next_attempt_along() -> None:
    """In one process there is no queue to wait for: the chain is one call."""
    with testing.engine(CATALOG, settings=SETTINGS) as engine:
        run = engine.run("three_hours")

    assert (run.status, run.position.attempts.continued) == ("COMPLETED", 7)


def test_threads_carry_it_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    with testing.engine(
        CATALOG, tmp_path_factory.mktemp("store"), clock=FrozenClock(), workers=2
    ) as engine:
        runs = [engine.start("once_each", 3) for _ in range(4)]
        done = [engine.wait(run.run_id, 60) for run in runs]
        outputs = [engine.output(run.run_id) for run in done]

    assert outputs == [[1, 2, 3]] * 4
    assert [run.position.attempts.continued for run in done] == [3] * 4


def test_a_handler_that_asks_is_continued_as_long_as_it_comes_further(
    engine: InProcessEngine,
) -> None:
    run, trace = played(engine, "once_each", 20)

    assert engine.output(run.run_id) == [*range(1, 21)]
    assert (run.position.attempts.continued, run.position.attempts.failed) == (20, 0)
    assert trace[-2:] == ["step_continued 20 20", "checkpoint_resumed 21 20"]


def test_an_answer_that_is_lost_changes_nothing(engine: InProcessEngine) -> None:
    engine.faults.lose_answer("once_each")

    run, _ = played(engine, "once_each", 3)

    assert engine.output(run.run_id) == [1, 2, 3]
    assert (run.position.attempts.continued, run.position.attempts.ended) == (3, 3)


def test_a_handler_that_only_asks_has_failed_with_the_third(engine: InProcessEngine) -> None:
    run, trace = played(engine, "never")

    assert run.dead_letter_reason == "RETRIES_EXHAUSTED"
    assert run.error is not None
    assert run.error.code == "no_progress"
    assert (run.position.attempts.continued, run.position.attempts.failed) == (2, 6)
    assert trace[:2] == ["step_continued 1 -", "step_continued 2 -"]
    assert "step_error 3 NoProgressError" in trace


@pytest.mark.parametrize("step", ["in_a_pool", "in_a_coroutine", "in_tasks"])
def test_it_may_be_asked_for_from_wherever_an_error_comes_out(
    engine: InProcessEngine, step: str
) -> None:
    run, trace = played(engine, step)

    assert (engine.output(run.run_id), trace) == ("done", ["step_continued 1 -"])


@pytest.mark.parametrize("step", ["in_a_bare_thread", "swallowed"])
def test_what_is_returned_in_its_place_counts(engine: InProcessEngine, step: str) -> None:
    run, trace = played(engine, step)

    assert (engine.output(run.run_id), trace) == ("attempt 1", [])


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("in_tasks_one_of_which_fails", "BaseExceptionGroup"),
        ("lost_in_a_finally", "ValueError"),
    ],
)
def test_what_fails_beside_it_is_a_failure(engine: InProcessEngine, step: str, kind: str) -> None:
    run, trace = played(engine, step)

    assert (engine.output(run.run_id), run.position.attempts.failed) == ("done", 1)
    assert trace == [f"step_error 1 {kind}"]


@pytest.mark.parametrize("step", ["when_stopped", "in_a_callback"])
def test_with_a_stop_at_the_same_time_it_is_the_stop(step: str) -> None:
    with testing.engine(CATALOG, settings=SETTINGS) as engine:
        run = engine.start(step)
        engine.faults.sigterm_at_checkpoint(step)
        done = engine.run_until_settled(run.run_id)
        output, events = engine.output(run.run_id), engine.trace(run.run_id)

    assert output == "done"
    assert (done.position.attempts.interrupted, done.position.attempts.continued) == (1, 0)
    (end,) = [event for event in events if event.type == "step_terminated"]
    assert end.reason == Termination.INSTANCE_SHUTDOWN


def test_what_is_kept_early_ends_no_attempt(engine: InProcessEngine) -> None:
    run, trace = played(engine, "early_checkpoints")

    assert (engine.output(run.run_id), trace) == ("attempt 1", [])


def test_one_late_checkpoint_is_not_made_twice(engine: InProcessEngine) -> None:
    run, trace = played(engine, "one_late_checkpoint")

    assert engine.output(run.run_id) == "attempt 2"
    assert DONE[run.run_id, 0] == 1
    assert trace == ["step_continued 1 1", "checkpoint_resumed 2 1"]


def test_a_handler_that_never_looks_back_is_not_ended(engine: InProcessEngine) -> None:
    """It would begin at the beginning, again and again."""
    run, trace = played(engine, "begins_anew")

    assert (engine.output(run.run_id), trace) == ("attempt 1", [])
    assert {DONE[run.run_id, number] for number in range(1, 6)} == {1}


def test_what_comes_again_is_no_progress_and_ends_no_attempt(engine: InProcessEngine) -> None:
    run, trace = played(engine, "looks_and_begins_anew")

    assert engine.output(run.run_id) == "attempt 2"
    assert trace == ["step_continued 1 5", "checkpoint_resumed 2 5"]
    assert run.position.attempts.ended == 1


def test_a_checkpoint_in_a_thread_of_the_handler_ends_nothing(engine: InProcessEngine) -> None:
    run, trace = played(engine, "keeps_in_a_thread")

    assert (engine.output(run.run_id), trace) == ("attempt 1", [])


def test_a_checkpoint_hides_no_error(engine: InProcessEngine) -> None:
    run, trace = played(engine, "keeps_while_it_fails")

    assert (engine.output(run.run_id), run.position.attempts.failed) == ("kept", 1)
    assert trace == ["step_error 1 ValueError", "checkpoint_resumed 2 1"]


def test_a_handler_that_catches_it_at_each_checkpoint_ends_at_its_deadline(
    engine: InProcessEngine,
) -> None:
    run, trace = played(engine, "keeps_until_it_is_late")

    assert (engine.output(run.run_id), run.position.attempts.failed) == ("done", 1)
    assert trace[0] == "step_terminated 1 dispatch_deadline_exceeded"


LOOPS = pytest.mark.parametrize("step", ["two_loops", "two_loops_later"])
OUTPUT = {"read": [*range(36)], "write": [-number for number in range(10)]}


def done_by(run: Manifest) -> list[int]:
    return [DONE[run.run_id, number] for number in (*range(36), *range(100, 110))]


@LOOPS
def test_loops_are_continued_between_two_items(engine: InProcessEngine, step: str) -> None:
    run, trace = played(engine, step)

    assert engine.output(run.run_id) == OUTPUT
    assert done_by(run) == [1] * 46
    assert [line for line in trace if "continued" in line] == [
        f"step_continued {attempt} {count}"
        for attempt, count in enumerate([5, 10, 15, 20, 25, 30, 35], 1)
    ]


@LOOPS
def test_loops_do_nothing_again_at_a_sigterm(engine: InProcessEngine, step: str) -> None:
    for n in (1, 2):
        engine.faults.sigterm_at_checkpoint(step, n)

    run, _ = played(engine, step)

    assert (run.position.attempts.interrupted, run.position.attempts.failed) == (2, 0)
    assert (engine.output(run.run_id), done_by(run)) == (OUTPUT, [1] * 46)


@LOOPS
def test_loops_do_nothing_again_that_was_kept_before_a_kill(
    engine: InProcessEngine, step: str
) -> None:
    for n in (1, 2):
        engine.faults.kill_at_checkpoint(step, n)

    run, _ = played(engine, step)

    assert (run.position.attempts.expired, run.position.attempts.failed) == (2, 0)
    assert (engine.output(run.run_id), done_by(run)) == (OUTPUT, [1] * 46)


def test_a_run_that_is_paused_meanwhile_goes_on_when_it_is_resumed(
    engine: InProcessEngine,
) -> None:
    run = engine.start("three_hours")
    with_pause = engine.clock
    assert isinstance(with_pause, FrozenClock)
    with with_pause.watched_by(lambda: _pause_once(engine, run.run_id)):
        paused = engine.run_until_settled(run.run_id)
    engine.resume(run.run_id)
    done = engine.run_until_settled(run.run_id)

    assert (paused.paused, paused.status) == (True, "PENDING")
    assert engine.output(run.run_id)["done"] == [*range(36)]
    assert {DONE[run.run_id, number] for number in range(36)} == {1}
    assert done.position.attempts.failed == 0


def _pause_once(engine: InProcessEngine, run_id: str) -> None:
    """Pause the run in its 100th minute."""
    if DONE[run_id, 20] and not DONE[run_id, -1]:
        DONE[run_id, -1] += 1
        engine.pause(run_id)
