"""A step of paid calls and of items, which gives up in the middle until it is repaired."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from leasehold import PermanentError, PipelineEntry, Registry, StepContext, StepDispatchEntry

#: What was paid for, in order; how much each run's `work` gives up at, until it is repaired.
PAID: list[str] = []
BROKEN: list[str] = []

ITEMS = 6


def collect(ctx: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    PAID.append("collect")
    return given


def work(ctx: StepContext, given: dict[str, Any]) -> list[str]:
    """Pay for two calls an item: one that is recorded, one whose item is in the checkpoint."""
    items = ctx.checkpointed(range(ITEMS), every=1)
    for number in items:
        answer = ctx.once(f"ask {number}", _pay, f"ask {number}", given["size"])
        if BROKEN and number == ITEMS // 2:
            raise PermanentError(BROKEN[0])
        items.results.append(_pay(f"item {number}", given["size"]) + answer)
    return [result.strip("x ") for result in items.results]


def _pay(name: str, size: int) -> str:
    PAID.append(name)
    return name.ljust(size, "x")


def _entry(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


STEPS = Registry("dispatch", [_entry("collect"), _entry("work")])
PIPELINES = Registry("pipelines", [PipelineEntry(name="paid", steps=("collect", "work"))])
