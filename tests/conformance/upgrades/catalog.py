"""The catalog of the stores in this folder. Its steps do what the input of their run says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    TrialPolicy,
)
from leasehold.registry.pipelines import Catalog

ITEMS: Final = 4

#: What was paid for, by the id of its run.
PAID: list[tuple[str, str]] = []
#: Whether what failed fails no more, and what was refused is accepted.
REPAIRED: list[bool] = []


def collect(ctx: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    """Pay once, and leave a file where the run wants one."""
    PAID.append((ctx.run_id, "collect"))
    if given.get("file"):
        ctx.artifacts.put("notes.txt", b"kept for the end")
    return given


def work(ctx: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    """Pay for a call and an item four times; fail in the middle where the run says so."""
    items = ctx.checkpointed(range(ITEMS), every=1)
    for number in items:
        ctx.once(f"ask {number}", _pay, ctx.run_id, f"ask {number}")
        if number == ITEMS // 2 and not REPAIRED:
            if given.get("work") == "fails":
                raise ValueError("the provider is away")
            if given.get("work") == "gives up":
                raise PermanentError("no quota", code="quota")
        items.results.append(_pay(ctx.run_id, f"item {number}"))
    return {**given, "items": items.results}


def judge(ctx: StepContext, given: dict[str, Any]) -> dict[str, Any]:
    """Be content with the second trial."""
    PAID.append((ctx.run_id, f"judge {ctx.trial}"))
    return {"settled": ctx.trial > 1, "score": ctx.trial / 10, "findings": ["too short"]}


def look(ctx: GateContext, output: Any) -> None:
    """Refuse what is not repaired, where the run wants that."""
    if output.get("gate") == "refuses" and not REPAIRED:
        raise GatePolicyFailure(check_id="look", finding="too short", remediation="Write more.")


def _pay(run_id: str, name: str) -> str:
    PAID.append((run_id, name))
    return name


def _entry(name: str, **fields: Any) -> StepDispatchEntry:
    usable: dict[str, Any] = {
        "handler": f"{__name__}:{name}",
        "agent_timeout": timedelta(minutes=1),
        "dispatch_deadline": timedelta(minutes=2),
    }
    return StepDispatchEntry(step_type=name, **(usable | fields))


CATALOG: Final = Catalog(
    steps=Registry(
        "dispatch",
        [
            _entry("collect"),
            _entry("work", gates=("look",)),
            _entry("judge"),
            _entry("away", handler="remote"),
        ],
    ),
    pipelines=Registry(
        "pipelines",
        [
            PipelineEntry(name="paid", steps=("collect", "work")),
            PipelineEntry(name="far", steps=("away", "collect")),
            PipelineEntry(
                name="tried",
                steps=("work", "judge"),
                trials=TrialPolicy(author="work", reviewer="judge", max_trials=3),
            ),
        ],
    ),
    gates=Registry("gates", [GateEntry(name="look", check=f"{__name__}:look")]),
)
