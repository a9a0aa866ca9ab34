"""Steps that keep more than a manifest has room for."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Any

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.errors import StoreUnavailableError

#: More than a manifest has room for.
LARGE = "läuft " * 8_000
#: How often each iteration was done, by run.
DONE: Counter[tuple[str, int]] = Counter()
#: What is done at the end of the first attempt, by run id.
AT_END: dict[str, Any] = {}


def count(ctx: StepContext, given: Any) -> Any:
    """Do some iterations, with large results after each; fail once where the test says so."""
    done = ctx.resume.iteration_count if ctx.resume else 0
    assert ctx.resume is None or ctx.resume.partial_results == [LARGE, done]
    for number in range(done + 1, given["iterations"] + 1):
        DONE[ctx.run_id, number] += 1
        ctx.checkpoint(number, [LARGE, number])
    AT_END.pop("then", lambda: None)()
    return {"n": given["iterations"]}


def pass_on(ctx: StepContext, given: Any) -> Any:
    """Hand on what is given."""
    AT_END.pop("pass", lambda: None)()
    return given


def turn_back(ctx: StepContext, given: Any) -> Any:
    """Count back, in a phase that another one came after."""
    ctx.checkpoint(5, LARGE, "read")
    ctx.checkpoint(1, [], "write")
    ctx.checkpoint(3, LARGE, "read")


def keep_in_the_first_attempt(ctx: StepContext, given: Any) -> Any:
    """Keep something large, but not again."""
    if ctx.attempt == 1 and given["is_call"]:
        ctx.once("large", lambda: LARGE)
    elif ctx.attempt == 1:
        ctx.checkpoint(1, LARGE)
    return given


def go_on_without(ctx: StepContext, given: Any) -> Any:
    """Keep something large, and go on where that cannot be recorded."""
    with suppress(StoreUnavailableError):
        ctx.checkpoint(1, LARGE)
    AT_END.pop("careless", lambda: None)()
    return given


def _step(name: str, handler: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"tests.api.in_process.keeping:{handler}",
        agent_timeout=timedelta(minutes=2),
        dispatch_deadline=timedelta(minutes=3),
        max_retries=1,
    )


STEPS = Registry(
    "dispatch",
    [
        _step("count", "count"),
        _step("pass", "pass_on"),
        _step("back", "turn_back"),
        _step("late", "keep_in_the_first_attempt"),
        _step("careless", "go_on_without"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="counts", steps=("count",)),
        PipelineEntry(name="passes", steps=("count", "pass")),
        PipelineEntry(name="turns", steps=("back",)),
        PipelineEntry(name="late", steps=("late",)),
        PipelineEntry(name="careless", steps=("careless", "pass")),
    ],
)
