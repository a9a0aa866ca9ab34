"""A pipeline with one of each: a failure, a recorded call, a gate, an announcement."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from leasehold import (
    GateEntry,
    GatePolicyFailure,
    LogChannel,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)

WORD = "tulip"


class Letter(BaseModel):
    text: str


def ask(text: str) -> str:
    return f"{text}!"


def draft(ctx: StepContext, letter: Letter) -> Letter:
    if ctx.attempt == 1:
        raise OSError(f"no model for {WORD}")
    ctx.mark_bootstrap_complete("model")
    text = ctx.once(f"ask:{letter.text}", ask, letter.text)
    ctx.log.info("asked")
    ctx.spend(tokens=1200, usd=0.25)
    ctx.mark_execution_complete()
    return Letter(text=text)


def send(ctx: StepContext, _letter: Letter) -> Letter:
    return Letter(text=f"{ctx.traceparent}")


def sink(_ctx: StepContext, _letter: Letter) -> Letter:
    raise ValueError("no post today")


def polite(_ctx: Any, letter: Letter) -> None:
    if "rude" in letter.text:
        raise GatePolicyFailure("polite", f"{letter.text} is rude", "Write it anew.")


_AT_ONCE: dict[str, Any] = {
    "agent_timeout": timedelta(seconds=30),
    "dispatch_deadline": timedelta(seconds=60),
}
STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(step_type="draft", handler=draft, gates=("polite",), **_AT_ONCE),
        StepDispatchEntry(step_type="send", handler=send, **_AT_ONCE),
        StepDispatchEntry(step_type="sink", handler=sink, max_retries=0, **_AT_ONCE),
        StepDispatchEntry(step_type="far", handler="remote", **_AT_ONCE),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="letters", steps=("draft", "send")),
        PipelineEntry(name="sinks", steps=("sink",)),
        PipelineEntry(name="far", steps=("far",)),
    ],
)
GATES = Registry("gates", [GateEntry(name="polite", check=polite)])
CHANNELS = Registry("channels", [LogChannel(name="desk")])
