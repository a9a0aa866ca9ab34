"""A pipeline with trials: what each step does is said by the input, trial by trial."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from leasehold import (
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    StepResult,
    TrialPolicy,
)


def write(ctx: StepContext, given: Any) -> Any:
    """Return what is known by now; the input may say that it is PARTIAL."""
    plan = given["trials"][ctx.trial - 1]
    seen = {"trial": ctx.trial, "findings": ctx.findings}
    if ctx.trial > 1:
        seen["before"] = ctx.output_of("write")["trial"]
        seen["status_before"] = ctx.status_of("write")
        seen["review_before"] = ctx.output_of("review")["score"]
    return StepResult({**given, "seen": seen, "trial": ctx.trial}, plan.get("status", "SUCCESS"))


def polish(ctx: StepContext, given: Any) -> Any:
    assert ctx.output_of("write")["trial"] == ctx.trial == given["trial"]
    return {**given, "polished": ctx.trial}


def review(ctx: StepContext, given: Any) -> Any:
    plan = given["trials"][ctx.trial - 1]
    verdict = {"settled": plan["settled"], "score": plan["score"], "findings": plan["findings"]}
    return {**verdict, "seen": given["seen"], "status": ctx.status_of("write")}


def publish(ctx: StepContext, given: Any) -> Any:
    return {
        "review": given,
        "written": ctx.output_of("write")["trial"],
        "polished": ctx.output_of("polish")["polished"],
        "status": ctx.status_of("write"),
        "findings": ctx.findings,
    }


def _step(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


STEPS = Registry("dispatch", [_step(name) for name in ("write", "polish", "review", "publish")])
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(
            name="paper",
            steps=("write", "polish", "review", "publish"),
            trials=TrialPolicy(author="write", reviewer="review", max_trials=3),
        ),
        PipelineEntry(
            name="short",
            steps=("write", "review"),
            trials=TrialPolicy(author="write", reviewer="review", max_trials=3),
        ),
    ],
)


def verdict(score: float, *, settled: bool = False, **facts: Any) -> dict[str, Any]:
    """The result of a trial."""
    return {"settled": settled, "score": score, "findings": [f"of {score}"], **facts}
