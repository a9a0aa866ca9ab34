"""The notes pipeline, and one whose first step starts a process and hears nobody."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from tests.bundle import catalog


def parent(ctx: StepContext, given: Any) -> Any:
    """Start a process that would outlive the test; wait while the test holds the step."""
    folder = Path(os.environ["BUNDLE_TEST_FOLDER"])
    child = subprocess.Popen(["sleep", "600"])  # noqa: S607 - of the PATH
    with (folder / "children").open("a") as children:
        children.write(f"{ctx.run_id} {os.getpid()} {child.pid}\n")
    while (folder / "hold-parent").exists():
        time.sleep(0.01)
    child.kill()
    child.wait()
    return given


STEPS = Registry(
    "dispatch",
    [
        *catalog.STEPS,
        StepDispatchEntry(
            step_type="parent",
            handler="tests.bundle.catalog_of_children:parent",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        ),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [*catalog.PIPELINES, PipelineEntry(name="parents", steps=("parent", "two"))],
)
