"""Handlers that spend, in processes apart and in the worker's, and their catalog."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold import (
    Budget,
    PipelineEntry,
    Registry,
    RetryPolicy,
    StepContext,
    StepDispatchEntry,
)


def spends(ctx: StepContext, given: dict[str, Any]) -> int:
    """Spend 1.5 dollars at a time, from the checkpoint on; killed once after the second time."""
    done = 0 if ctx.resume is None else ctx.resume.iteration_count
    for number in range(done, given["times"]):
        with Path(given["paid"]).open("a") as paid:
            paid.write(f"{number}\n")
        ctx.checkpoint(number + 1, [])
        ctx.spend(tokens=1000, usd=1.5)
        if given.get("kill") and number == 1:
            ctx.checkpoint(number + 1, [])  # written with the spend
            os.kill(os.getpid(), signal.SIGKILL)
    return done


def calls(ctx: StepContext, given: dict[str, Any]) -> list[int]:
    """Make calls of 1.5 dollars each; an attempt is killed after each second one, once."""

    def pay(number: int) -> int:
        with Path(given["paid"]).open("a") as paid:
            paid.write(f"{number}\n")
        ctx.spend(tokens=1000, usd=1.5)
        return number

    made = []
    for number in range(given["times"]):
        made.append(ctx.once(f"call {number}", pay, number))
        killed = Path(f"{given['paid']}-killed-{number}")
        if given.get("kill") and number % 2 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return made


def maps(ctx: StepContext, given: dict[str, Any]) -> list[int]:
    """Make as many calls of 1.5 dollars, two at a time."""

    def pay(number: int) -> int:
        with Path(given["paid"]).open("a") as paid:
            paid.write(f"{number}\n")
        ctx.spend(usd=1.5)
        return number

    return list(ctx.map(pay, range(given["times"]), at_once=2))


def idle(ctx: StepContext, given: Any) -> Any:
    return given


def _entry(name: str, handler: str = "", **options: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=handler or f"{__name__}:{name.partition('-')[0]}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        retry=RetryPolicy(first=timedelta(seconds=0.01), factor=1),
        **options,
    )


STEPS = Registry(
    "dispatch",
    [
        _entry("spends"),
        _entry("spends-inline", isolation="inline"),
        _entry("spends-bounded", budget=Budget(usd=4)),
        _entry("calls"),
        _entry("maps"),
        _entry("idle"),
        _entry("away", handler="remote"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="spends", steps=("spends", "idle")),
        PipelineEntry(name="inline", steps=("spends-inline", "idle")),
        PipelineEntry(name="bounded", steps=("spends-bounded", "idle")),
        PipelineEntry(name="maps", steps=("maps", "idle")),
        PipelineEntry(name="away", steps=("away", "idle")),
        PipelineEntry(name="calls", steps=("calls", "idle"), budget=Budget(tokens=10**6)),
    ],
)
