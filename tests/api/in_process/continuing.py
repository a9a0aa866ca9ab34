"""Handlers that are continued by their next attempt, and those that only look like it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from leasehold import (
    AgentClientError,
    ContinuedError,
    PipelineEntry,
    Registry,
    SoftTimeoutError,
    StepContext,
    StepDispatchEntry,
)
from leasehold.registry.pipelines import Catalog

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
