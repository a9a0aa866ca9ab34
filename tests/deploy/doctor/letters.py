"""A catalog in order, of which each test gets a copy in its own folder."""

from __future__ import annotations

from datetime import timedelta

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry


def write(ctx: StepContext, given: str) -> str:
    return given


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler="letters:write",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
        )
        for name in ("write_letter", "send")
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="letters", steps=("write_letter", "send"))])
