"""The notes pipeline, and those whose steps start processes and ignore the stop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from tests.worlds.catalogs import bundle as catalog


def parent(ctx: StepContext, given: Any) -> Any:
    """Start a process that would outlive the test; wait while the test holds the step."""
    folder = Path(os.environ["BUNDLE_TEST_FOLDER"])
    child = subprocess.Popen(["sleep", "600"])  # noqa: S607 - of the PATH
    with (folder / "children").open("a") as children:
        children.write(f"{ctx.run_id} {os.getpid()} {child.pid}\n")
    while (folder / "hold-parent").exists():
        time.sleep(0.05)
    child.kill()
    child.wait()
    return given


def leaver(ctx: StepContext, given: Any) -> Any:
    """Leave two processes to the system, one in its own session; end them at last."""
    folder = Path(os.environ["BUNDLE_TEST_FOLDER"])
    words = ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]
    left = [
        int(subprocess.run(words, stdout=subprocess.PIPE, check=True, start_new_session=own).stdout)
        for own in (False, True)
    ]
    with (folder / "children").open("a") as children:
        children.writelines(f"{ctx.run_id} {os.getpid()} {pid}\n" for pid in left)
    while (folder / "hold-leaver").exists():
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return given


GATES = catalog.GATES
STEPS = Registry(
    "dispatch",
    [
        *catalog.STEPS,
        *(
            StepDispatchEntry(
                step_type=name,
                handler=f"tests.worlds.catalogs.bundle_of_children:{name}",
                agent_timeout=timedelta(minutes=1),
                dispatch_deadline=timedelta(minutes=2),
            )
            for name in ("parent", "leaver")
        ),
    ],
)
PIPELINES = Registry(
    "pipelines",
    [
        *catalog.PIPELINES,
        PipelineEntry(name="parents", steps=("parent", "two")),
        PipelineEntry(name="leavers", steps=("leaver",)),
    ],
)
