"""A catalog with a gate that lets the second output of a run pass, as a person may, too."""

from __future__ import annotations

from datetime import timedelta

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PipelineEntry,
    Registry,
    StepDispatchEntry,
)
from tests.worlds.catalogs.sample import CALLS, Number


def check(ctx: GateContext, output: Number) -> None:
    """Refuse the first output of a run."""
    CALLS[ctx.run_id, "checked"] += 1
    if CALLS[ctx.run_id, "checked"] == 1:
        raise GatePolicyFailure(check_id="twice", finding=f"{output.n}?", remediation="Look again.")


def _entry(name: str, handler: str, gates: tuple[str, ...] = ()) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"tests.worlds.catalogs.sample:{handler}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        gates=gates,
    )


STEPS = Registry(
    "dispatch",
    [
        _entry("draft", "add", gates=("twice",)),
        _entry("send", "add"),
        _entry("hold", "hold"),
        _entry("fail_twice", "fail_twice"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="letters", steps=("draft", "send")),
        PipelineEntry(name="holds", steps=("hold", "send")),
        PipelineEntry(name="recovers", steps=("fail_twice",)),
    ],
)
GATES = Registry("gates", [GateEntry(name="twice", check="tests.api.in_process.gated:check")])
