"""A catalog whose step has an entry action, and whose worker is killed twice.

In its first attempt right after the action; in the second one once its handler spoiled the file.
"""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from typing import Any

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry

#: The process of the command: a child of it gets its environment.
WORKER = int(os.environ.setdefault("WORKER", str(os.getpid())))


def write(ctx: StepContext, given: Any) -> None:
    """Write what the handler reads, whatever is there."""
    ctx.artifacts.put("settings.txt", f"{given} in attempt {ctx.attempt}".encode())


def die_first(ctx: StepContext, given: Any) -> None:
    if ctx.attempt == 1:
        _kill_the_worker()


def read(ctx: StepContext, given: Any) -> str:
    """Return what the file says, once the kills are over."""
    if ctx.attempt == 2:
        ctx.artifacts.put("settings.txt", b"\xff stale")
        _kill_the_worker()
    return ctx.artifacts.get("settings.txt").decode()


def _kill_the_worker() -> None:
    os.kill(WORKER, signal.SIGKILL)
    time.sleep(600)


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="read",
            handler=f"{__name__}:read",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
            entry_actions=(f"{__name__}:write", f"{__name__}:die_first"),
        ),
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="read", steps=("read",))])
