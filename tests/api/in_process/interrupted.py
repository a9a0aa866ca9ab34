"""A catalog whose handlers and gate press Ctrl-C the first time that a run comes by."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta

from leasehold import (
    GateContext,
    GateEntry,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from tests.worlds.catalogs.sample import CALLS, Number, add


def _press(run_id: str) -> None:
    CALLS[run_id, "pressed"] += 1
    if CALLS[run_id, "pressed"] == 1:
        signal.raise_signal(signal.SIGINT)


def press(ctx: StepContext, given: Number) -> Number:
    """Be interrupted once, then add one."""
    _press(ctx.run_id)
    return add(ctx, given)


async def press_later(ctx: StepContext, given: Number) -> Number:
    """Be interrupted once, in a coroutine."""
    await asyncio.sleep(0)
    return press(ctx, given)


def press_in_a_loop(ctx: StepContext, given: Number) -> Number:
    """Be interrupted once at the fourth of six items."""
    items = ctx.checkpointed(range(6))
    for item in items:
        CALLS[ctx.run_id, f"item {item}"] += 1
        if item == 3:
            _press(ctx.run_id)
    return add(ctx, given)


def press_from_afar(ctx: StepContext, given: Number) -> Number:
    """Have the process that started the run told to end, once, from the handler's own."""
    if ctx.attempt == 1:
        os.kill(given.n, signal.SIGTERM)
        ctx.wait_or_shutdown(60)
    return given


def check(ctx: GateContext, output: Number) -> None:
    """Be interrupted once, then let all pass."""
    _press(ctx.run_id)


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=f"tests.api.in_process.{handler}",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            gates=gates,
        )
        for name, handler, gates in (
            ("press", "interrupted:press", ()),
            ("press_later", "interrupted:press_later", ()),
            ("press_in_a_loop", "interrupted:press_in_a_loop", ()),
            ("press_from_afar", "interrupted:press_from_afar", ()),
            ("gated", "sample:add", ("press",)),
        )
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in STEPS]
)
GATES = Registry("gates", [GateEntry(name="press", check="tests.api.in_process.interrupted:check")])
