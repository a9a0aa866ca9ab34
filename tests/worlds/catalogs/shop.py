"""A catalog that the command line's tests run; each test gets a copy in its own folder."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from leasehold import (
    AgentClientError,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)

HOLD = Path("hold")  # while this file is there, `charge` does not end
CHARGING = Path("charging")  # `charge` writes here that it has begun
LARGE = 1000  # an order of more is logged
LOG = logging.getLogger("shop.orders")
BUSY = Path("busy")  # `charge` takes this file away and fails


class Order(BaseModel):
    amount: int


def reserve(ctx: StepContext, given: Order) -> Order:
    print("reserving")  # noqa: T201 - what handlers print must not get into the answer
    ctx.progress(0.5, "half of it")
    if given.amount > LARGE:
        LOG.info("a large order: %d", given.amount)
    return given


def charge(ctx: StepContext, given: Order) -> Order:
    CHARGING.write_text(str(ctx.attempt))
    if BUSY.exists():
        BUSY.unlink()
        raise AgentClientError("the provider is busy [503]", code="provider_busy")
    while HOLD.exists():
        if ctx.wait_or_shutdown(0.02):
            raise RuntimeError("stopped")
    return given


def hold_on(ctx: StepContext, given: Order) -> Order:
    """Ignore every signal, in a thread that Python waits for before it ends."""
    CHARGING.write_text(str(ctx.attempt))
    with ThreadPoolExecutor() as pool:
        pool.submit(_wait_while_held).result()
    return given


def _wait_while_held() -> None:
    while HOLD.exists():
        time.sleep(0.02)


def bind(ctx: StepContext, given: Order) -> dict[str, str]:
    """Give more than a manifest keeps, and two files."""
    ctx.artifacts.put("cover.txt", b"A book\n")
    ctx.artifacts.put("pages/1.bin", bytes(range(256)))
    return {"text": "é" * 40_000}


def refuse(ctx: StepContext, given: Order) -> Order:
    raise PermanentError("13 is refused; choose another amount", code="unlucky")


def step(name: str, handler: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"shop:{handler}",
        agent_timeout=timedelta(seconds=30),
        dispatch_deadline=timedelta(seconds=60),
    )


STEPS = Registry(
    "dispatch",
    [
        step("reserve", "reserve"),
        step("charge", "charge"),
        step("ship", "reserve"),
        step("refuse", "refuse"),
        step("lost", "nowhere"),
        step("deaf", "hold_on"),
        step("bind", "bind"),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        PipelineEntry(name="order", steps=("reserve", "charge", "ship")),
        PipelineEntry(name="doomed", steps=("reserve", "refuse")),
        PipelineEntry(name="broken", steps=("reserve", "lost")),
        PipelineEntry(name="deaf", steps=("deaf",)),
        PipelineEntry(name="book", steps=("reserve", "bind")),
    ],
)
