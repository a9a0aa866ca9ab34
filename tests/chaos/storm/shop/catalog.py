"""The tables of the shop."""

from __future__ import annotations

from datetime import timedelta

from leasehold import PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=f"shop.{name}:{name}",
            agent_timeout=timedelta(minutes=5),
            dispatch_deadline=timedelta(minutes=10),
        )
        for name in ("gather", "refine", "report")
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name="order", steps=("gather", "refine", "report"))]
)
