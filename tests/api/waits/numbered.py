"""A handler that waits for a signal whose name no code spells out, and its catalog."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry


def ask_by_number(ctx: StepContext, given: Any) -> Any:
    return [ctx.wait_for(f"answer-{number}") for number in (1,)]


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="ask_by_number",
            handler=f"{__name__}:ask_by_number",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="numbered", steps=("ask_by_number",))])
