"""Handlers that the tests of the engine run, and the catalog that names them."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from leasehold import (
    AgentClientError,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    StepResult,
)
from leasehold.errors import StoreUnavailableError

#: What handlers tell the tests, and what the tests tell them; by run id.
CALLS: Counter[tuple[str, str]] = Counter()
ENTERED: dict[str, threading.Event] = {}
GO_ON: dict[str, threading.Event] = {}


class Number(BaseModel):
    """The input and output of most handlers."""

    n: int


def add(ctx: StepContext, given: Number) -> Number:
    """Add one."""
    CALLS[ctx.run_id, ctx.step_type] += 1
    return Number(n=given.n + 1)


async def add_later(ctx: StepContext, given: Number) -> Number:
    """Add one, in a coroutine."""
    await asyncio.sleep(0)
    return add(ctx, given)


def fail_twice(ctx: StepContext, given: Number) -> Number:
    """Fail on the first two attempts."""
    if ctx.attempt < 3:
        raise AgentClientError("the model is busy", code="overloaded", details=[{"status": 529}])
    return add(ctx, given)


def fail(ctx: StepContext, given: Number) -> Number:
    """Fail on each attempt."""
    raise ValueError(f"{ctx.step_type} cannot do {given.n}")


def refuse(ctx: StepContext, given: Number) -> Number:
    """Fail for good."""
    raise PermanentError("the folder is gone", code="folder_missing")


def exit_(ctx: StepContext, given: Number) -> Number:
    """Try to take the worker along."""
    raise SystemExit(3)


def misfit(ctx: StepContext, given: Number) -> Number:
    """Return what the model refuses."""
    return {"n": "many"}  # type: ignore[return-value]


def large(ctx: StepContext, given: Number) -> dict[str, Any]:
    """Return more than a manifest keeps."""
    return {"n": given.n, "text": "é" * 40_000}


def thirty(ctx: StepContext, given: Any) -> Any:
    """Return almost as much as a manifest keeps of one value."""
    return {"text": "x" * 30_000}


def half(ctx: StepContext, given: Number) -> StepResult[Number]:
    """Return an output that is not all there is."""
    return StepResult(Number(n=given.n), status="PARTIAL")


def sum_of_two(ctx: StepContext, given: Any) -> Any:
    """Use the output of a step before the last."""
    return {"n": given["n"] + ctx.output_of("add")["n"]}


def write_file(ctx: StepContext, given: Number) -> Any:
    """Store a file of the run."""
    address = ctx.artifacts.put("notes/one.txt", b"one")
    return {"n": given.n, "address": address, "files": list(ctx.artifacts.list())}


def hold(ctx: StepContext, given: Number) -> Number:
    """Say that it is there, and wait until it may go on or must stop."""
    ENTERED[ctx.run_id].set()
    ctx.progress(0.5, "half way")
    while not GO_ON[ctx.run_id].wait(0.01):
        if ctx.shutdown_requested:
            raise RuntimeError("asked to stop")
    return add(ctx, given)


def say(ctx: StepContext, given: Any) -> Any:
    """Say how far it is after the last renewal, and end as ordered."""
    ctx.progress(0.5, "before")
    if given["end"] == "checkpoint":
        ctx.checkpoint(1, [])
        raise OSError("torn")
    ctx.progress(0.9, "at the end")
    if given["end"] == "fail":
        raise PermanentError("no")
    if given["end"] == "outage":
        raise StoreUnavailableError(store="its own", problem="it is away")
    return {"done": True}


def count(ctx: StepContext, given: Number) -> Any:
    """Count, keep each number; wait at the first, until it may go on or must stop."""
    counted = ctx.resume.partial_results if ctx.resume else []
    begun_at = len(counted)
    while len(counted) < 3:
        counted.append(len(counted) + given.n)
        ctx.checkpoint(len(counted), counted, "counting")
        ENTERED[ctx.run_id].set()
        while not GO_ON[ctx.run_id].is_set():
            if ctx.wait_or_shutdown(0.01):
                raise RuntimeError("asked to stop")
    return {"n": len(counted), "counted": counted, "begun_at": begun_at}


async def count_later(ctx: StepContext, given: Number) -> Any:
    """Count as `count` does, in a coroutine."""
    counted = ctx.resume.partial_results if ctx.resume else []
    begun_at = len(counted)
    while len(counted) < 3:
        counted.append(len(counted) + given.n)
        await ctx.acheckpoint(len(counted), counted, "counting")
        ENTERED[ctx.run_id].set()
        while not GO_ON[ctx.run_id].is_set():
            if await ctx.await_or_shutdown(0.01):
                raise RuntimeError("asked to stop")
    return {"n": len(counted), "counted": counted, "begun_at": begun_at}


def obey(ctx: StepContext, given: Number) -> Number:
    """Wait until it may go on or must stop; keep nothing."""
    ENTERED[ctx.run_id].set()
    while not GO_ON[ctx.run_id].is_set():
        if ctx.wait_or_shutdown(0.01):
            raise RuntimeError("asked to stop")
    return given


def keep_at(ctx: StepContext, given: Any) -> Any:
    """Keep more than a manifest holds, at a place that is written in Python's words."""
    iteration_count, phase = ast.literal_eval(given["place"])
    ctx.checkpoint(iteration_count, "x" * 40_000, phase)
    raise KeptError


class KeptError(Exception):
    """The checkpoint was made."""


def continue_later(ctx: StepContext, given: Number) -> Number:
    """Leave the work to the second attempt."""
    return add(ctx, given) if ctx.attempt > 1 else ctx.continue_later()


def close_on_stop(ctx: StepContext, given: Number) -> Number:
    """Wait for what only a callback ends."""
    closed = threading.Event()
    ctx.on_stop(GO_ON[ctx.run_id].set)()  # forgotten at once
    forget = ctx.on_stop(closed.set)
    ENTERED[ctx.run_id].set()
    if not GO_ON[ctx.run_id].is_set() and closed.wait(30):
        raise ConnectionError("closed")
    forget()
    return add(ctx, given)


def deaf(ctx: StepContext, given: Number) -> Number:
    """Wait until it may go on, whatever it is asked."""
    CALLS[ctx.run_id, "deaf"] += 1
    ENTERED[ctx.run_id].set()
    GO_ON[ctx.run_id].wait(30)
    return Number(n=given.n + 1)


class SpeechlessError(Exception):
    """Cannot say what happened."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def speechless(ctx: StepContext, given: Number) -> Number:
    """Fail without words."""
    raise SpeechlessError


def odd(ctx: StepContext, given: Any) -> Any:
    """Return a number that JSON does not have."""
    return {"value": float(given["value"])}


def mumble(ctx: StepContext, given: Number) -> Number:
    """Say how far it is, in bytes that are not text."""
    ctx.progress(float("nan"), "file \udce9.txt")
    return add(ctx, given)


def _entry(name: str, handler: str, **limits: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"tests.worlds.catalogs.sample:{handler}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        **limits,
    )


STEPS = Registry(
    "dispatch",
    [
        _entry("add", "add"),
        _entry("add_again", "add"),
        _entry("add_later", "add_later"),
        _entry("fail_twice", "fail_twice"),
        _entry("fail", "fail", max_retries=2),
        _entry("refuse", "refuse"),
        _entry("exit", "exit_", max_retries=0),
        _entry("misfit", "misfit", max_retries=0),
        _entry("large", "large"),
        _entry("half", "half"),
        *(_entry(f"thirty_{number}", "thirty") for number in range(10)),
        _entry("sum_of_two", "sum_of_two"),
        _entry("write_file", "write_file"),
        _entry("hold", "hold"),
        _entry("obey", "obey"),
        _entry("count", "count"),
        _entry("count_later", "count_later"),
        _entry("keep_at", "keep_at", max_retries=0),
        _entry("continue_later", "continue_later"),
        _entry("close_on_stop", "close_on_stop"),
        _entry("deaf", "deaf"),
        _entry("speechless", "speechless", max_retries=0),
        _entry("odd", "odd", max_retries=0),
        _entry("mumble", "mumble"),
        _entry("say", "say", max_retries=0),
        _entry("elsewhere", "no_such_handler"),
        StepDispatchEntry(
            step_type="away",
            handler="remote",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        ),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="three", steps=("add", "add_later", "add_again")),
        PipelineEntry(name="recovers", steps=("add", "fail_twice")),
        PipelineEntry(name="obeys", steps=("obey",)),
        PipelineEntry(name="fails", steps=("add", "fail")),
        PipelineEntry(name="refuses", steps=("refuse", "add")),
        PipelineEntry(name="exits", steps=("exit",)),
        PipelineEntry(name="misfits", steps=("misfit",)),
        PipelineEntry(name="large", steps=("large",)),
        PipelineEntry(name="large_then", steps=("large", "add")),
        PipelineEntry(name="much", steps=tuple(f"thirty_{number}" for number in range(10))),
        PipelineEntry(name="half", steps=("half",)),
        PipelineEntry(name="sums", steps=("add", "add_again", "sum_of_two")),
        PipelineEntry(name="files", steps=("write_file",)),
        PipelineEntry(name="holds", steps=("hold", "add")),
        PipelineEntry(name="counts", steps=("count", "add")),
        PipelineEntry(name="counts_later", steps=("count_later", "add")),
        PipelineEntry(name="keeps_at", steps=("keep_at",)),
        PipelineEntry(name="continues", steps=("continue_later",)),
        PipelineEntry(name="closes", steps=("close_on_stop",)),
        PipelineEntry(name="deaf", steps=("deaf",)),
        PipelineEntry(name="away", steps=("add", "away")),
        PipelineEntry(name="speechless", steps=("speechless",)),
        PipelineEntry(name="odd", steps=("odd",)),
        PipelineEntry(name="mumbles", steps=("mumble",)),
        PipelineEntry(name="says", steps=("say",)),
        PipelineEntry(name="elsewhere", steps=("add", "elsewhere")),
    ],
)
