"""What the storm runs: each way in which a run ends or blocks, announced over three channels."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from leasehold import (
    GateEntry,
    GatePolicyFailure,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from leasehold.registry.channels import LogChannel
from leasehold.registry.pipelines import Catalog

CHANNELS: Final = ("first", "second", "third")


def act(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Do what the run is to end by."""
    if given["ends"] == "dead":
        raise PermanentError("it cannot be done", code="never")
    return given


def judge(ctx: Any, output: Any) -> None:
    """Refuse what is to block."""
    if output["ends"] == "blocked":
        raise GatePolicyFailure("not_yet", "A person has to look.", "Look.")


CATALOG: Final = Catalog(
    steps=Registry(
        "dispatch",
        [
            StepDispatchEntry(
                step_type="act",
                handler="tests.storm.catalog:act",
                agent_timeout=timedelta(minutes=1),
                dispatch_deadline=timedelta(minutes=2),
                isolation="inline",
                gates=("judge",),
            )
        ],
    ),
    pipelines=Registry("pipelines", [PipelineEntry(name="act", steps=("act",))]),
    gates=Registry("gates", [GateEntry(name="judge", check="tests.storm.catalog:judge")]),
    channels=Registry("channels", [LogChannel(name=name) for name in CHANNELS]),
)
