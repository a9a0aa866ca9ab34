"""A catalog in which a person looks at what came of the trials; handlers that are told notes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PipelineEntry,
    Registry,
    RetryPolicy,
    StepContext,
    StepDispatchEntry,
    TrialPolicy,
)

MAX_TRIALS = 3

#: What handlers were told, in order.
SEEN: list[str] = []


class Review(BaseModel):
    settled: bool
    score: float
    findings: list[str] = []


class Draft(BaseModel):
    text: str
    score: float


def write(ctx: StepContext, given: dict[str, Any]) -> Draft:
    scores = given["scores"]
    SEEN.append(": ".join([f"write {ctx.trial}", *ctx.findings]))
    return Draft(text=f"text {ctx.trial}", score=scores[min(ctx.trial, len(scores)) - 1])


def review(ctx: StepContext, given: Draft) -> Review:
    return Review(settled=given.score == 1.0, score=given.score)


def publish(ctx: StepContext, given: Review) -> str:
    return str(ctx.output_of("write")["text"])


def person_looks(ctx: GateContext, output: Review) -> None:
    """Have a person look at the review that ends the trials, and at all behind the first."""
    if output.settled or ctx.trial == MAX_TRIALS:
        raise GatePolicyFailure("person_looks", f"trial {ctx.trial}", "Read the text.")


def fail(ctx: StepContext, given: dict[str, Any]) -> None:
    SEEN.append(f"{ctx.note}")
    if ctx.attempt <= given["fails"]:
        raise ConnectionError("the provider is away")


def after(ctx: StepContext, given: None) -> None:
    SEEN.append(f"after: {ctx.note}")


def echo(ctx: StepContext, given: dict[str, Any]) -> str | None:
    return ctx.note


def is_told(ctx: GateContext, output: str | None) -> None:
    if output is None:
        raise GatePolicyFailure("is_told", "Nobody said anything.", "Retry it with a note.")


def _entry(name: str, gates: tuple[str, ...] = ()) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        retry=RetryPolicy(first=timedelta(seconds=60), factor=1),
        gates=gates,
    )


STEPS = Registry(
    "dispatch",
    [
        _entry("write"),
        _entry("review", ("person_looks",)),
        _entry("publish"),
        _entry("fail"),
        _entry("after"),
        _entry("echo", ("is_told",)),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(
            name="paper",
            steps=("write", "review", "publish"),
            trials=TrialPolicy(author="write", reviewer="review", max_trials=MAX_TRIALS),
        ),
        PipelineEntry(name="notes", steps=("fail", "after")),
        PipelineEntry(name="echoes", steps=("echo",)),
    ],
)
GATES = Registry(
    "gates",
    [GateEntry(name=name, check=f"{__name__}:{name}") for name in ("person_looks", "is_told")],
)
