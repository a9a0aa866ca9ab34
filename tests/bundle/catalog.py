"""A pipeline whose handlers run in the processes of the dev server, and tell the tests in files."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold import AgentClientError, PipelineEntry, Registry, StepContext, StepDispatchEntry


def note(ctx: StepContext, given: Any) -> Any:
    """Write down the call, wait while the test holds the step, add the step to the output."""
    folder = Path(os.environ["BUNDLE_TEST_FOLDER"])
    with (folder / "calls").open("a") as calls:
        calls.write(f"{ctx.run_id} {ctx.step_type} {ctx.attempt} {os.getpid()}\n")
    while (folder / f"hold-{ctx.step_type}").exists() and not ctx.shutdown_requested:
        time.sleep(0.01)
    if given.get("fail") == ctx.step_type and ctx.attempt == 1:
        raise AgentClientError("not now", code="busy")
    return {**given, "done": [*given.get("done", []), ctx.step_type]}


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=name,
            handler="tests.bundle.catalog:note",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
        for name in ("one", "two", "three")
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="notes", steps=("one", "two", "three"))])
