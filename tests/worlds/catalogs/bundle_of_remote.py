"""A pipeline whose second step is for workers elsewhere."""

from __future__ import annotations

from datetime import timedelta

from leasehold import PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler=handler,
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
        for name, handler in (("one", "tests.worlds.catalogs.bundle:note"), ("elsewhere", "remote"))
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="both", steps=("one", "elsewhere"))])
