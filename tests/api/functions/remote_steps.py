"""Steps for workers elsewhere, between steps of this bundle."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, Field

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry, TrialPolicy


class Count(BaseModel):
    """The output of the remote step."""

    n: int
    words: list[str] = []


class Positive(BaseModel):
    """The input of the last step."""

    n: int = Field(gt=0)


def finish(ctx: StepContext, given: Positive) -> Positive:
    """Take what the remote step gave."""
    return given


def large(ctx: StepContext, given: Any) -> Any:
    """Give more than a manifest keeps."""
    return {"text": "é" * 40_000}


def _entry(step_type: str, handler: str = "remote", **limits: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=step_type,
        handler=handler,
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        **limits,
    )


HERE = "tests.api.functions.remote_steps"
STEPS = Registry(
    "dispatch",
    [
        _entry("count", output=f"{HERE}:Count", max_retries=1),
        _entry("free"),
        _entry("unresolved", output=f"{HERE}:Nothing"),
        _entry("steady", heartbeat_interval=None),
        _entry("finish", f"{HERE}:finish"),
        _entry("large", f"{HERE}:large"),
        _entry("elsewhere", f"{HERE}:no_such_handler"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="counts", steps=("count", "finish")),
        PipelineEntry(name="last", steps=("free",)),
        PipelineEntry(name="two", steps=("free", "count")),
        PipelineEntry(name="unresolved", steps=("unresolved",)),
        PipelineEntry(name="steady", steps=("steady",)),
        PipelineEntry(name="local", steps=("finish", "free")),
        PipelineEntry(name="large", steps=("large", "free")),
        PipelineEntry(
            name="reviewed",
            steps=("free", "steady"),
            trials=TrialPolicy(author="free", reviewer="steady", max_trials=2),
        ),
    ],
)
