"""A worker process whose attempts hold slots, and that is killed at any moment.

Each attempt writes when it begins and ends.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from leasehold import Limit, PipelineEntry, Registry, StepContext, StepDispatchEntry
from leasehold.in_process import InProcessEngine

#: How long an attempt works.
WORK_S: Final = "SLOT_WORK_S"


def settings(folder: Path) -> dict[str, str]:
    return {
        "LEASEHOLD_STORE": f"sqlite:///{folder}/leasehold.db",
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
        "PIPELINE_LEASE_TTL_S": "3",
        "PIPELINE_HEARTBEAT_S": "1",
        "PIPELINE_MAX_INTERRUPTIONS": "1000",
        "SLOT_LOG": f"{folder}/attempts.log",
    }


def engine_of(folder: Path, limit: int, workers: int) -> InProcessEngine:
    step = StepDispatchEntry(
        step_type="call",
        handler="tests.chaos.kills.slot_worker:call",
        agent_timeout=timedelta(seconds=30),
        dispatch_deadline=timedelta(seconds=60),
        heartbeat_interval=timedelta(seconds=1),
        isolation="inline",
        limits=(Limit("model:{given.model}", at_once=limit),),
    )
    pipelines = [PipelineEntry(name="call", steps=("call",))]
    return InProcessEngine(
        Registry("dispatch", [step]),
        Registry("pipelines", pipelines),
        environ=settings(folder),
        workers=workers,
    )


def call(ctx: StepContext, given: Any) -> Any:
    """Note that a call begins, take some time, and note that it is over."""
    note("begin", ctx.run_id)
    time.sleep(float(os.environ[WORK_S]))
    note("end", ctx.run_id)
    return given


def note(event: str, run_id: str) -> None:
    """Append a line at once: what a kill leaves is whole lines."""
    line = f"{time.monotonic()} {event} {run_id} {os.getpid()}\n"
    file = os.open(os.environ["SLOT_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


def work(pipe: Connection, folder: Path, limit: int, work_s: float) -> None:
    """Work on whatever there is, until this process is killed, or the other end of the pipe is."""
    os.environ.update({**settings(folder), WORK_S: str(work_s)})
    engine = engine_of(folder, limit, workers=limit + 2)
    engine.look_after_every_run(0.5)
    engine.adopt_all()
    pipe.send("ready")
    pipe.poll(None)
    os._exit(0)
