"""A handler of paid calls, each of which it wants to make once, and the catalog that names it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PermanentError,
    PipelineEntry,
    Registry,
    RetryPolicy,
    StepContext,
    StepDispatchEntry,
)

#: Which calls were made, in order; what a test has happen in the next one.
MADE: list[str] = []
DOES: list[Callable[[], object]] = []

#: More than a manifest keeps.
LARGE = 40_000


def pay(name: str, size: int = 10) -> str:
    """Be paid for an answer of so many characters."""
    MADE.append(name)
    if DOES:
        DOES.pop()()
    return f"{name} {len(MADE)} ".ljust(size, "x")


async def apay(name: str, size: int = 10) -> str:
    await asyncio.sleep(0)
    return pay(name, size)


def count(name: str) -> int:
    MADE.append(name)
    return len(MADE)


def ask(ctx: StepContext, given: dict[str, Any]) -> list[str]:
    """Make the calls that are named, and fail after some of them in the attempts that are said."""
    size, keep = given.get("size", 10), given.get("keep", ())
    answers = []
    for number, name in enumerate(given["names"]):
        if number in given.get("fails", [])[ctx.attempt - 1 : ctx.attempt]:
            raise ConnectionError("the provider is away")
        call = count if given.get("counts") == ctx.attempt else pay
        more = (size,) if call is pay else ()
        answers.append(str(ctx.once(name, call, name, *more, keep=name in keep)))
    return answers


def ask_at_first(ctx: StepContext, given: dict[str, Any]) -> str:
    """Make calls that cost something in the first attempt, and none in another, which may fail."""

    def paid(name: str) -> str:
        ctx.spend(tokens=100, usd=0.5)
        return pay(name)

    if ctx.attempt == 1:
        for name in given["names"]:
            ctx.once(name, paid, name)
    elif given["fails"]:
        raise PermanentError("no")
    return "done"


def ask_much(ctx: StepContext, given: dict[str, Any]) -> int:
    """Make so many calls, all in an attempt."""
    return sum(ctx.once(f"call {number}", int, number) for number in range(given["calls"]))


async def aask(ctx: StepContext, given: dict[str, Any]) -> list[str]:
    """Make all calls at once."""
    calls = [ctx.aonce(name, apay, name, given.get("size", 10)) for name in given["names"]]
    answers = await asyncio.gather(*calls)
    if ctx.attempt == 1:
        raise ConnectionError("the provider is away")
    return answers


def tell(ctx: StepContext, given: list[str]) -> int:
    """Make a call of the same name as one before."""
    return len(ctx.once("one", pay, "told"))


def kill_often(ctx: StepContext, given: dict[str, Any]) -> list[str]:
    """Make six calls, killed by SIGKILL twice at each: before it is recorded, and after that.

    The result of each second one is large.
    """
    folder = Path(given["folder"])
    paid, kills = folder / "paid", folder / "kills"

    def call(number: int) -> str:
        with paid.open("a") as lines:
            lines.write(f"{number}\n")
        die_once(f"before {number}")
        return str(number * number).ljust(LARGE if number % 2 else 1)

    def die_once(at: str) -> None:
        told = kills.read_text().splitlines() if kills.exists() else []
        if at not in told:
            with kills.open("a") as lines:
                lines.write(f"{at}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    squares = []
    for number in range(6):
        squares.append(ctx.once(f"call {number}", call, number).strip())
        die_once(f"after {number}")
    return squares


def judge(ctx: GateContext, output: list[str]) -> None:
    """Refuse the first output of a run."""
    if len(MADE) == len(output):
        raise GatePolicyFailure("judge", "It is the first one.", "Retry it.")


def _entry(name: str, gates: tuple[str, ...] = ()) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{name.partition('-')[0]}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        max_retries=20,
        retry=RetryPolicy(first=timedelta(seconds=0.01 if name == "kill_often" else 1), factor=1),
        gates=gates,
    )


STEPS = Registry(
    "dispatch",
    [
        _entry("ask"),
        _entry("ask_at_first"),
        _entry("ask_much"),
        _entry("aask"),
        _entry("ask-judged", gates=("judge",)),
        _entry("tell"),
        _entry("kill_often"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="asks", steps=("ask", "tell")),
        PipelineEntry(name="asks-at-first", steps=("ask_at_first",)),
        PipelineEntry(name="asks-much", steps=("ask_much",)),
        PipelineEntry(name="asks-at-once", steps=("aask",)),
        PipelineEntry(name="judged", steps=("ask-judged",)),
        PipelineEntry(name="killed", steps=("kill_often",)),
    ],
)
GATES = Registry("gates", [GateEntry(name="judge", check=f"{__name__}:judge")])
