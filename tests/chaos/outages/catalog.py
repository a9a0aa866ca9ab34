"""Handlers that use the artifact store, and the catalog that names them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold import (
    GateEntry,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    StepResult,
)

#: How often each handler ran; what a handler is to do; by run id or step.
CALLS: Counter[tuple[str, str]] = Counter()
DOES: dict[str, Callable[[], object]] = {}
ENTERED: dict[str, threading.Event] = {}
GO_ON: dict[str, threading.Event] = {}

#: More than a manifest keeps.
LARGE = "x" * 40_000


def make(ctx: StepContext, given: Any) -> Any:
    """Give a large output, once it may."""
    CALLS[ctx.run_id, "make"] += 1
    _write_down(ctx)
    DOES.get("make", lambda: None)()
    _wait_if_ordered(ctx, given)
    return {**given, "text": LARGE}


def _write_down(ctx: StepContext) -> None:
    """Tell a test in another process of the call."""
    if folder := os.environ.get("OUTAGE_TEST_FOLDER"):
        with (Path(folder) / "calls").open("a") as calls:
            calls.write(f"{ctx.run_id} {ctx.step_type}\n")


async def keep_later(ctx: StepContext, given: Any) -> Any:
    """Keep a checkpoint in a coroutine, once it may."""
    _wait_if_ordered(ctx, given)
    await ctx.acheckpoint(1, "kept")
    return given


def _wait_if_ordered(ctx: StepContext, given: Any) -> None:
    if given.get("waits"):
        GO_ON[ctx.run_id] = GO_ON.get(ctx.run_id) or threading.Event()
        ENTERED[ctx.run_id] = threading.Event()
        ENTERED[ctx.run_id].set()
        GO_ON[ctx.run_id].wait(30)


def take(ctx: StepContext, given: Any) -> Any:
    """Take a large output."""
    CALLS[ctx.run_id, "take"] += 1
    _write_down(ctx)
    return {**given, "text": len(given["text"])}


def keep(ctx: StepContext, given: Any) -> Any:
    """Keep a large checkpoint, meet an outage, and go on from it."""
    CALLS[ctx.run_id, "keep"] += 1
    if ctx.resume is None:
        ctx.checkpoint(1, LARGE)
        DOES.get("keep", lambda: None)()
        raise ConnectionError("the provider is away")
    return {"text": ctx.resume.partial_results}


def ask(ctx: StepContext, given: Any) -> Any:
    """Ask the store in one of several ways, and let pass what that raises in one of several."""
    CALLS[ctx.run_id, "ask"] += 1
    DOES.get("ask", lambda: None)()
    call = _ASKED[given["how"]]
    try:
        call(ctx)
    except Exception as error:  # noqa: BLE001 - whatever the store says
        _passed_on(error, given.get("passes", "as it is"))
    return {"asked": True}


def _passed_on(error: Exception, how: str) -> None:
    match how:
        case "as a cause":
            raise ValueError("the report is not written") from error
        case "as a context":
            raise ValueError("the report is not written")
        case "as permanent":
            raise PermanentError("the report cannot be written") from error
        case "in a group":
            raise ExceptionGroup("two failed", [ValueError("one"), error])
        case "as its own":
            raise ValueError("the report is not written") from None
    raise error


_ASKED: dict[str, Callable[[StepContext], object]] = {
    "put": lambda ctx: ctx.artifacts.put("report.md", b"# Report"),
    "get": lambda ctx: ctx.artifacts.get("report.md"),
    "exists": lambda ctx: ctx.artifacts.exists("report.md"),
    "list": lambda ctx: ctx.artifacts.list(),
    "output": lambda ctx: ctx.output_of("make"),
    "checkpoint": lambda ctx: ctx.checkpoint(1, LARGE),
}


def pass_first(ctx: Any, output: Any) -> None:
    """Let everything pass, as a gate before another."""
    CALLS[ctx.run_id, "pass_first"] += 1


def judge(ctx: Any, output: Any) -> None:
    """Read what was given and made before, as a gate."""
    CALLS[ctx.run_id, "judge"] += 1
    DOES.get("judge", lambda: None)()
    assert ctx.given["text"] == ctx.output_of("make")["text"]


def err(ctx: StepContext, given: Any) -> StepResult[Any]:
    """Say of the output itself that it is none."""
    CALLS[ctx.run_id, "err"] += 1
    failed_output = {"problem": "the model refused", "api_key": "sk-1234567890", "text": LARGE}
    return StepResult(failed_output, status="ERROR")


def nest(ctx: StepContext, given: Any) -> Any:
    """Return a list in a list in a list."""
    return nested(given["depth"])


def nest_and_keep(ctx: StepContext, given: Any) -> Any:
    """Keep a list in a list in a list."""
    ctx.checkpoint(1, nested(given["depth"]))
    return nested(given["depth"])


def nested(depth: int) -> list[Any]:
    found: list[Any] = [1]
    for _ in range(depth - 1):
        found = [found]
    return found


def _entry(name: str, handler: str | None = None, **limits: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"tests.chaos.outages.catalog:{handler or name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        **limits,
    )


def _remote(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler="remote",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        max_retries=1,
    )


STEPS = Registry(
    "dispatch",
    [
        _entry("make"),
        _entry("take"),
        _entry("keep_later"),
        _entry("keep", max_retries=1),
        _entry("ask", max_retries=0),
        _entry("judged", "take", gates=("pass_first", "judge")),
        _entry("err", max_retries=1),
        _entry("nest", max_retries=0),
        _entry("nest_and_keep", max_retries=0),
        _remote("away"),
        _remote("away_too"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="makes", steps=("make", "take")),
        PipelineEntry(name="keeps", steps=("keep",)),
        PipelineEntry(name="awaits", steps=("keep_later",)),
        PipelineEntry(name="asks", steps=("ask",)),
        PipelineEntry(name="asks_later", steps=("make", "take", "ask")),
        PipelineEntry(name="judges", steps=("make", "judged")),
        PipelineEntry(name="errs", steps=("err",)),
        PipelineEntry(name="nests", steps=("nest",)),
        PipelineEntry(name="keeps_deep", steps=("nest_and_keep",)),
        PipelineEntry(name="remote", steps=("away",)),
        PipelineEntry(name="away_twice", steps=("make", "away", "away_too")),
        PipelineEntry(name="away", steps=("make", "away", "take")),
    ],
)
GATES = Registry(
    "gates",
    [
        GateEntry(name="pass_first", check="tests.chaos.outages.catalog:pass_first"),
        GateEntry(name="judge", check="tests.chaos.outages.catalog:judge"),
    ],
)
