"""Agents that are measured, on a fake model, and the meters that count what they cost.

They are their own module because Python knows the benchmark under two names: as the program,
and as the module that a handler is in.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from leasehold import PipelineEntry, Registry, RetryPolicy, StepContext, StepDispatchEntry
from leasehold.integrations.durable import durable, key_of
from leasehold.registry.pipelines import Catalog

#: What a model or a tool returns.
SAYS: Final = "The quick brown fox jumps over the lazy dog. " * 10
#: How long a call of the killed agent takes, and the limit of its attempts: of about 100 calls.
CALL_S: Final = 0.02
LIMIT_S: Final = 3.5


@dataclass(slots=True)
class AgentMeter:
    """The counts of a handler's calls.

    Args:
        taken: returns the reads and writes of documents since it was called last.
    """

    taken: Callable[[], Counter[str]]
    made: Counter[str] = field(default_factory=Counter)  # while all calls are made
    resumed: Counter[str] = field(default_factory=Counter)  # while all results are read
    took: list[float] = field(default_factory=list)  # CPU seconds a call
    resume_s: float = 0.0
    resume_cpu_s: float = 0.0


METERS: Final[dict[str, AgentMeter]] = {}  # by store; one run at a time on each


async def converse(ctx: StepContext, given: dict[str, Any]) -> int:
    """Make calls in turns of a model and a tool; the next attempt is given all their results."""
    meter, is_first = METERS[given["store"]], ctx.resume is None
    meter.taken()
    began, cpu = time.perf_counter(), time.process_time()
    with durable(ctx) as step:
        for number in range(given["calls"]):
            at = time.process_time()
            await step.call(
                key_of(("model", "tool")[number % 2], str(number)),
                partial(said, number),
                request={"asked": f"call {number}", "prompt": "Be brief."},
            )
            if is_first:
                meter.took.append(time.process_time() - at)
    if is_first:
        meter.made = meter.taken()
        ctx.checkpoint(1, None)
        ctx.continue_later()
    meter.resume_s, meter.resume_cpu_s = time.perf_counter() - began, time.process_time() - cpu
    meter.resumed = meter.taken()
    return int(given["calls"])


async def said(number: int) -> str:
    """Return what a model or a tool says."""
    return f"{number}: {SAYS}"


async def killed(ctx: StepContext, given: dict[str, Any]) -> list[int]:
    """Do as `converse`, with calls that take a while, and notes of those that are made."""
    return [await _noted_call(ctx, given, number) for number in range(given["calls"])]


async def batch(ctx: StepContext, given: dict[str, Any]) -> list[int]:
    """Call many tools at once."""
    calls = (_noted_call(ctx, given, number) for number in range(given["calls"]))
    return list(await asyncio.gather(*calls))


async def _noted_call(ctx: StepContext, given: dict[str, Any], number: int) -> int:
    notes = Path(given["folder"]) / "made"

    async def body() -> str:
        with notes.open("a") as lines:
            lines.write(f"{number}\n")
        await asyncio.sleep(given["seconds"] * (1 + number % 7) / 4)
        return f"{number}: {time.time_ns()}"

    with durable(ctx) as step:
        result: str = await step.call(f"call {number}", body, request=number)
    with (Path(given["folder"]) / "returned").open("a") as lines:
        lines.write(f"{result}\n")
    return number


def _step(name: str, limit_s: float) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"bench.agent_handlers:{name}",
        agent_timeout=timedelta(seconds=limit_s),
        dispatch_deadline=timedelta(minutes=15),
        cleanup_ttl=timedelta(seconds=0.1),
        max_retries=100,
        retry=RetryPolicy(first=timedelta(seconds=0.01), factor=1),
    )


STEPS: Final = Registry(
    "dispatch", [_step("converse", 600), _step("killed", LIMIT_S), _step("batch", 600)]
)
PIPELINES: Final = Registry(
    "pipelines", [PipelineEntry(name=each.step_type, steps=(each.step_type,)) for each in STEPS]
)
CATALOG: Final = Catalog(steps=STEPS, pipelines=PIPELINES)
