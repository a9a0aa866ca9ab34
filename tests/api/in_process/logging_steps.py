"""Handlers and a gate that log, by `ctx.log` and by their own logger."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from datetime import timedelta
from typing import Any

from leasehold import (
    GateContext,
    GateEntry,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)

LOG = logging.getLogger("tests.shop")


def says(ctx: StepContext, given: Any) -> Any:
    ctx.log.info("by the context")
    LOG.info("by its own logger, with %s", "words", extra={"step": 300})
    return given


async def says_later(ctx: StepContext, given: Any) -> Any:
    await asyncio.to_thread(LOG.info, "from a thread of asyncio")
    await asyncio.gather(_say("from a task"))
    return given


async def _say(line: str) -> None:
    await asyncio.sleep(0)
    LOG.info(line)


def says_from_threads(ctx: StepContext, given: Any) -> Any:
    kept = contextvars.copy_context()
    for call in (
        lambda: ctx.log.info("a thread, by the context"),
        lambda: kept.run(LOG.info, "a thread with the handler's context"),
        lambda: LOG.info("a thread of its own"),
    ):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    return given


def check(ctx: GateContext, output: Any) -> None:
    LOG.info("by a gate")


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=f"tests.api.in_process.logging_steps:{name}",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            gates=gates,
        )
        for name, gates in {"says": (), "says_later": ("heard",), "says_from_threads": ()}.items()
    ],
)
PIPELINES = Registry(
    "pipelines",
    [PipelineEntry(name="logs", steps=("says", "says_later", "says_from_threads"))],
)
GATES = Registry(
    "gates", [GateEntry(name="heard", check="tests.api.in_process.logging_steps:check")]
)
