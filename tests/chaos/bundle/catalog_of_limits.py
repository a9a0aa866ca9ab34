"""A pipeline whose step learns its limit: its handler loads something, works, and may hang."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry


def learn(ctx: StepContext, given: Any) -> Any:
    """Load, make a first tool call, and work; hang where that is asked for."""
    ctx.mark_bootstrap_complete("search")
    while given.get("hangs"):
        time.sleep(0.05)
    ctx.mark_execution_complete()
    return given


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="learn",
            handler=f"{__name__}:learn",
            agent_timeout=timedelta(seconds=10),
            dispatch_deadline=timedelta(seconds=15),
            cleanup_ttl=timedelta(seconds=0.5),
            max_retries=0,
            limit_strategy="phase_decoupled",
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="learns", steps=("learn",))])
