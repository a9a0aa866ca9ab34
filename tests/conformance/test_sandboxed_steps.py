"""A handler in its own process has no connection to the store: its worker writes for it."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from leasehold import PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.read_runs import get_run, timeline_of
from leasehold.services.start_run import StartRequest, start_run

pytestmark = pytest.mark.catalog(__name__, PIPELINE_MIN_BACKOFF_S="0.01")

MIB = 1024**2


def fail_once(ctx: StepContext, given: Any) -> Any:
    """Keep what there is and fail; the next attempt says what it found, and what holds it."""
    if ctx.resume is None:
        ctx.artifacts.put("note.txt", b"kept")
        ctx.checkpoint(2, {"words": given["words"]}, phase="reading")
        ctx.mark_execution_complete()
        ctx.mark_execution_complete()
        raise ValueError("not yet")
    ctx.mark_bootstrap_complete("search")
    ctx.mark_execution_complete()
    return {
        "found": ctx.resume.partial_results,
        "file": ctx.artifacts.get("note.txt").decode(),
        "process": os.getpid(),
        "sockets": _sockets(),
    }


def _sockets() -> int:
    """Return how many sockets the process has: one, to its worker."""
    links = [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    return sum(str(fd.readlink()).startswith("socket:") for fd in links)


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="reads",
            handler=f"{__name__}:fail_once",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            memory_limit=512 * MIB,
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="reads", steps=("reads",))])


@pytest.mark.sandboxed
def test_what_it_keeps_is_kept_and_found_by_its_next_attempt(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = start_run(engine, StartRequest("reads", {"words": ["one", "two"]})).manifest.run_id

    first = execute_step(engine, Hint(run_id, 1))
    second = execute_step(engine, Hint(run_id, 2))

    assert (first, second) == ("retry_scheduled", "completed")
    run = get_run(engine, run_id)
    output = json.loads(run.steps["reads"].output or "")
    assert output.pop("process") != os.getpid()
    assert output == {"found": {"words": ["one", "two"]}, "file": "kept", "sockets": 1}
    assert run.position.dispatch.memory_limit_bytes == 512 * MIB
    story = [str(event.type) for event in timeline_of(engine, run_id)]
    assert story[1:4] == ["step_started", "step_error", "checkpoint_resumed"]

    record = run.steps["reads"]
    (failed,) = record.earlier_attempts or ()
    assert (failed.cold_start, failed.first_tool) == (True, None)
    assert (record.cold_start, record.first_tool) == (False, "search")
    assert record.bootstrap_seconds is not None
    assert record.execution_seconds is not None
    assert 0 < record.bootstrap_seconds < 60
    assert 0 <= record.execution_seconds < 60
    warnings = [one.message for one in caplog.records if "mark_execution" in one.message]
    assert len(warnings) == 1
    (told,) = [e for e in timeline_of(engine, run_id) if e.type == "step_error"]
    assert told.model_dump(by_alias=True)["coldStart"] is True
