"""Handlers that fail, each in its own way, and the steps that say how they are retried."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, field_serializer, field_validator

from leasehold import (
    AgentClientError,
    GateContext,
    GateEntry,
    PipelineEntry,
    Registry,
    RetryPolicy,
    StepContext,
    StepDispatchEntry,
)


class ClientError(Exception):
    """The error of a client library."""


class GoneError(ClientError):
    """A subclass of it."""


def fail(ctx: StepContext, given: Any) -> Any:
    """Fail in the way that is asked for."""
    match given:
        case "gone":
            raise GoneError("it is gone")
        case "code":
            raise AgentClientError("not yours", code="forbidden")
        case "busy":
            raise AgentClientError("busy", retry_after=timedelta(seconds=45))
        case "odd output":
            return ctx
    raise ValueError("no")


def misuse(ctx: StepContext, given: Any) -> Any:
    """Do what the engine refuses, whenever it is tried."""
    match given:
        case "not a number":
            return {"items": [{"score": 1.0}, {"score": float("nan")}]}
        case "too long a number":
            return {"items": [10**4300]}
        case "progress":
            ctx.progress(40)
        case "checkpoint":
            ctx.checkpoint(1, {"pages": [b"\xff"]})
        case "one key":
            ctx.once("ask", len, "a")
            ctx.once("ask", len, "ab")
        case "many calls":
            for number in range(101):
                ctx.once(f"ask {number}", len, "a")
        case "odd output":
            return ctx
    return None


async def fail_together(ctx: StepContext, given: Any) -> Any:
    """Fail in one of two tasks."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.sleep(60))
        tasks.create_task(_fail_later(ctx))


async def _fail_later(ctx: StepContext) -> None:
    await asyncio.sleep(0)
    raise GoneError("it is gone")


def refuse(ctx: GateContext, output: Any) -> None:
    """Fail as a gate."""
    raise GoneError("the checker is gone")


class Spoiled(BaseModel):
    """A model whose own code raises what pydantic does not expect."""

    n: int

    @field_validator("n")
    @classmethod
    def _check(cls, n: int) -> int:
        if n == 1:
            raise KeyError("no such unit")
        return n

    @field_serializer("n")
    def _write(self, n: int) -> int:
        raise ValueError("x" * 1_000_000 + f" {n}")


def spoil(ctx: StepContext, given: Any) -> Spoiled:
    """Return an output whose model fails."""
    return {"n": given}  # type: ignore[return-value] # what handlers do


POLICY = RetryPolicy(
    first=timedelta(seconds=3),
    factor=2,
    max=timedelta(seconds=5),
    non_retryable=("tests.api.in_process.retried:ClientError", "forbidden", "invalid_output"),
)


def _entry(name: str, handler: str, **limits: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=handler,
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        **limits,
    )


_HERE = "tests.api.in_process.retried"

STEPS = Registry(
    "dispatch",
    [
        _entry("fail", f"{_HERE}:fail", retry=POLICY),
        _entry("fail_plainly", f"{_HERE}:fail"),
        _entry("misuse", f"{_HERE}:misuse"),
        _entry("fail_together", f"{_HERE}:fail_together", retry=POLICY),
        _entry("pass", f"{_HERE}:passing", retry=POLICY, gates=("refuse",)),
        _entry("spoil", f"{_HERE}:spoil"),
        _entry("later", "handler_of_later:run"),
        _entry("guarded", f"{_HERE}:passing", gates=("later",)),
    ],
)
GATES = Registry(
    "gates",
    [
        GateEntry(name="refuse", check=f"{_HERE}:refuse"),
        GateEntry(name="later", check="handler_of_later:run"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [PipelineEntry(name=step.step_type, steps=(step.step_type,)) for step in STEPS],
)


def passing(ctx: StepContext, given: Any) -> Any:
    """Return what it is given."""
    return given
