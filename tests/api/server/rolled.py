"""Two versions of one bundle: the new one has a step between the two of the old one.

`ROLLED_VERSION` says which of them a process is.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry

IS_NEW = os.environ.get("ROLLED_VERSION") == "new"


def note(ctx: StepContext, given: Any) -> Any:
    """Note each call, and what is known of the attempts before it; the new one may be held."""
    held = Path(os.environ["BUNDLE_TEST_FOLDER"]) / f"hold-{ctx.run_id}"
    while IS_NEW and held.exists() and not ctx.shutdown_requested:
        ctx.wait_or_shutdown(0.05)
    return [*given, [ctx.step_type, ctx.attempt]]


def _step(name: str) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:note",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
    )


NAMES = ("read", "polish", "write") if IS_NEW else ("read", "write")
STEPS = Registry("dispatch", map(_step, NAMES))
PIPELINES = Registry("pipelines", [PipelineEntry(name="report", steps=NAMES)])
