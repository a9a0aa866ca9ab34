"""A pipeline whose steps wait for signals: an approval, and words that are told one by one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry, WaitTimedOutError

#: What was paid for: each attempt of a step that asks before it waits.
ASKED: list[str] = []
#: What `fragile` raises, once each.
FAILS: list[str] = []


class Approval(BaseModel):
    approved: bool
    by: str = "someone"


def ask(ctx: StepContext, given: Any) -> Any:
    """Ask once, wait for the approval, and hand it on."""
    ctx.once("ask", ASKED.append, ctx.run_id)
    timeout = None if given.get("wait_s") is None else timedelta(seconds=given["wait_s"])
    answer = ctx.wait_for(
        "approval", Approval, timeout=timeout, otherwise=given.get("otherwise", "block")
    )
    return None if answer is None else answer.model_dump()


def ask_or_decide(ctx: StepContext, given: Any) -> Any:
    """Wait for the approval; without one, decide by itself."""
    try:
        answer = ctx.wait_for("approval", Approval, timeout=timedelta(minutes=1), otherwise="fail")
    except WaitTimedOutError:
        return Approval(approved=False, by="the handler").model_dump()
    return answer.model_dump()


async def ask_in_a_loop(ctx: StepContext, given: Any) -> Any:
    """Do the same in a loop, for two signals."""
    first = await ctx.await_for("first", str)
    second = await ctx.await_for("second")
    return [first, second, given]


def fragile(ctx: StepContext, given: Any) -> Any:
    """Take a signal, and fail once after that."""
    value = ctx.wait_for("go", int)
    if FAILS:
        raise RuntimeError(FAILS.pop())
    return value


def publish(_: StepContext, given: Any) -> Any:
    return {"published": given}


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


STEPS = Registry(
    "dispatch",
    [_entry(name) for name in ("ask", "ask_in_a_loop", "ask_or_decide", "fragile", "publish")],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="approved", steps=("ask", "publish")),
        PipelineEntry(name="decided", steps=("ask_or_decide",)),
        PipelineEntry(name="fragile", steps=("fragile",)),
        PipelineEntry(name="told", steps=("ask_in_a_loop",)),
    ],
)
