"""A catalog whose steps are done by remote workers.

The pipeline `away` has the step of that name alone; `far` has `farther` after it.
"""

from __future__ import annotations

from datetime import timedelta

from leasehold import PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler="remote",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
        for name in ("away", "farther")
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="away", steps=("away",)),
        PipelineEntry(name="far", steps=("away", "farther")),
    ],
)
