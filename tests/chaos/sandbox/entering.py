"""Entry actions of the tests, and a handler that says which were called before it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from leasehold import AgentClientError, PermanentError, SoftTimeoutError, StepContext
from leasehold.errors import StoreUnavailableError


def note(ctx: StepContext, given: Any) -> str:
    """Add a line to a file; what an entry action returns is ignored."""
    said = ctx.artifacts.get("said") if ctx.artifacts.exists("said") else b""
    ctx.artifacts.put("said", said + f"note {given}\n".encode())
    return "ignored"


async def note_later(ctx: StepContext, given: Any) -> None:
    """Do so in a coroutine."""
    await asyncio.sleep(0)
    note(ctx, f"{given} later")


def runs_a_loop(ctx: StepContext, given: Any) -> None:
    """Have its own loop, as a function without coroutines may."""
    asyncio.run(note_later(ctx, given))


def says(ctx: StepContext, given: Any) -> str:
    """Return what the entry actions noted."""
    return ctx.artifacts.get("said").decode()


async def says_later(ctx: StepContext, given: Any) -> str:
    """Do so in a coroutine."""
    await asyncio.sleep(0)
    return says(ctx, given)


def doubles(ctx: StepContext, given: int) -> int:
    return 2 * given


def busy(ctx: StepContext, given: Any) -> None:
    raise AgentClientError("no model", code="busy", details=["a", "b"], retry_after=7)


def wide(ctx: StepContext, given: Any) -> None:
    raise AgentClientError("x" * 9000, details=["y" * 500] * 60)


def never(ctx: StepContext, given: Any) -> None:
    raise PermanentError("no such folder", code="gone")


async def is_away(ctx: StepContext, given: Any) -> None:
    raise StoreUnavailableError(store="of files", problem="it is away")


def keeps(ctx: StepContext, given: Any) -> None:
    ctx.checkpoint(1, "nothing")


def resumes(ctx: StepContext, given: Any) -> Any:
    """Return what an earlier attempt kept."""
    ctx.checkpoint(8, "kept")
    return None if ctx.resume is None else ctx.resume.partial_results


def hangs(ctx: StepContext, given: Any) -> None:
    """Wait without end, and let the soft limit out."""
    ctx.progress(0.1, "hangs")
    time.sleep(600)


async def hangs_later(ctx: StepContext, given: Any) -> None:
    """Wait so in a coroutine."""
    await asyncio.sleep(600)


def is_told(ctx: StepContext, given: Any) -> None:
    """Take the soft limit, and return."""
    with suppress(SoftTimeoutError):
        time.sleep(600)


def spins(ctx: StepContext, given: Any) -> None:
    """Ignore every signal."""
    while True:
        with suppress(BaseException):
            time.sleep(600)


def given_alone(given: Any) -> None: ...


def pieces(ctx: StepContext, given: Any) -> Any:
    yield given


number = 5
