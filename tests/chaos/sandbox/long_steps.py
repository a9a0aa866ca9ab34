"""A catalog of one hostile step with much time: its worker ends before it does."""

from __future__ import annotations

from datetime import timedelta

from leasehold import PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="has_many_children",
            handler="tests.chaos.sandbox.hostile:has_many_children",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="long", steps=("has_many_children",))])
