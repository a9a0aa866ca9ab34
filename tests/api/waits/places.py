"""Pipelines with places that wait for signals: between steps, at the beginning, and at the end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry, Wait

HOUR = timedelta(hours=1)


class Approval(BaseModel):
    approved: bool
    by: str = "someone"


def draft(_: StepContext, given: Any) -> Any:
    return {"draft": given}


def publish(ctx: StepContext, given: Approval | None) -> Any:
    text = ctx.output_of("draft")
    return {"text": text, "by": None if given is None else given.by}


def tell(_: StepContext, given: Any) -> Any:
    return {"told": given}


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


def _approved(name: str, otherwise: Any) -> PipelineEntry:
    wait = Wait("approval", model=Approval, timeout=HOUR, otherwise=otherwise)
    return PipelineEntry(name=name, steps=("draft", wait, "publish"))


STEPS = Registry("dispatch", [_entry("draft"), _entry("publish"), _entry("tell")])
PIPELINES = Registry(
    "pipelines",
    [
        _approved("blocking", "block"),
        _approved("continuing", "continue"),
        _approved("failing", "fail"),
        PipelineEntry(name="begins", steps=(Wait("go"), "tell")),
        PipelineEntry(name="ends", steps=("tell", Wait("receipt"))),
        PipelineEntry(name="twice", steps=("draft", Wait("first"), Wait("second"), "tell")),
    ],
)
