"""Handlers and a gate that do not come to an end until a test says so, and their catalog."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
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
from leasehold.errors import LeaseLostError

#: By run: set by a handler that is there; set by a test that lets it go on; what it met then.
THERE: dict[str, threading.Event] = {}
GO_ON: dict[str, threading.Event] = {}
MET: dict[str, list[object]] = {}
#: By run: how it says something; empty: it returns.
SAYS: dict[str, str] = {}
#: Released by a call of a thread beside the handler that hangs.
MET_IN_CALL = threading.Semaphore(0)


def hang(ctx: StepContext, given: Any) -> Any:
    """Hear nothing; then try to write, and return."""
    ctx.progress(0.5, "half way")
    _wait(ctx.run_id)
    _note(ctx.run_id, lambda: ctx.checkpoint(1, ["late"]))
    return {"late": True}


async def hang_later(ctx: StepContext, given: Any) -> Any:
    """Hear nothing, in a coroutine that another one awaits."""
    THERE[ctx.run_id].set()
    await _answer_of(ctx.run_id)


async def _answer_of(run_id: str) -> None:
    await asyncio.to_thread(GO_ON[run_id].wait, 60)


def recurse(ctx: StepContext, given: Any, depth: int = 0) -> Any:
    """Hear nothing, many calls deep."""
    if depth < 100:
        return recurse(ctx, given, depth + 1)
    return hang(ctx, given)


def obey(ctx: StepContext, given: Any) -> Any:
    """Raise once it is to stop."""
    THERE[ctx.run_id].set()
    if ctx.wait_or_shutdown(60):
        raise RuntimeError("asked to stop")
    return given


def mutter(ctx: StepContext, given: Any) -> Any:
    """Say something each time a test asks for it; hear nothing."""
    said = 0
    ways: dict[str, Callable[[], object]] = {
        "progress": lambda: ctx.progress(0.5, f"{said}"),
        "checkpoint": lambda: ctx.checkpoint(said, [said]),
        "call": lambda: ctx.once(f"call-{said}", int),
        "call of another thread": lambda: _at_once(ctx, int),
        "call that hangs": lambda: _at_once(ctx, lambda: _hang_in_call(ctx.run_id)),
        "its log": lambda: ctx.log.warning("still here"),
        "any logger": lambda: logging.getLogger("shop").warning("still here"),
    }
    while True:
        THERE[ctx.run_id].set()
        GO_ON[ctx.run_id].wait(60)
        if not SAYS.get(ctx.run_id):
            return {"late": True}
        GO_ON[ctx.run_id].clear()
        said += 1
        ways[SAYS[ctx.run_id]]()


def _at_once(ctx: StepContext, call: Callable[[], int]) -> None:
    """Make a call in another thread, and want it here too."""

    def make() -> None:
        with suppress(LeaseLostError):  # its attempt may have ended meanwhile
            ctx.once("shared", call)

    other = threading.Thread(target=make, name="other")
    other.start()
    make()
    other.join()


def _hang_in_call(run_id: str) -> int:
    MET_IN_CALL.release()
    GO_ON[run_id].wait(60)
    return 0


def done(ctx: StepContext, given: Any) -> Any:
    """Be done at once."""
    return {"done": True}


def ponder(ctx: GateContext, output: Any) -> None:
    """Hear nothing, and let it pass."""
    _wait(ctx.run_id)


def _wait(run_id: str) -> None:
    THERE[run_id].set()
    GO_ON[run_id].wait(60)  # the line it hangs on


def _note(run_id: str, call: Callable[[], object]) -> None:
    try:
        MET[run_id].append(call())
    except Exception as error:
        MET[run_id].append(error)
        raise


def _entry(name: str, gates: tuple[str, ...] = (), **fields: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        isolation="inline",
        gates=gates,
        **fields,
    )


STEPS = Registry(
    "dispatch",
    [
        _entry("hang"),
        _entry("hang_later"),
        _entry("recurse"),
        _entry("obey"),
        _entry("mutter", silence_limit=timedelta(seconds=30)),
        _entry("done", gates=("ponder",)),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in STEPS],
)
GATES = Registry("gates", [GateEntry(name="ponder", check=f"{__name__}:ponder")])
