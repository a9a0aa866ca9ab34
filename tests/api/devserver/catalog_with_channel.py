"""A step that notes nothing, and a channel that gets its runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.registry.channels import LogChannel


def echo(ctx: StepContext, given: Any) -> Any:
    """Return what is given."""
    return given


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="echo",
            handler="tests.api.devserver.catalog_with_channel:echo",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            isolation="inline",
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="echo", steps=("echo",))])
CHANNELS = Registry("channels", [LogChannel(name="log")])
