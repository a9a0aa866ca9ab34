"""A worker process whose attempts hold slots, and that is killed at any moment.

Each attempt writes when it begins and ends.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, cast

from leasehold import (
    AgentClientError,
    Limit,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
)
from leasehold.in_process import InProcessEngine
from leasehold.ports.documents import Committed, Documents
from leasehold.services.execute_step import Hint, execute_step
from tests.worlds.wrapped import Wrapped

#: For so long a provider takes no more, where it refuses.
RETRY_AFTER_S: Final = 30.0
#: How long an attempt works.
WORK_S: Final = "SLOT_WORK_S"
#: What happens while the next attempt has its slot.
MEANWHILE: Final[list[Callable[[], object]]] = []


def settings(folder: Path) -> dict[str, str]:
    return {
        "LEASEHOLD_STORE": f"sqlite:///{folder}/leasehold.db",
        "LEASEHOLD_ARTIFACTS": f"file://{folder}/artifacts",
        "PIPELINE_LEASE_TTL_S": "3",
        "PIPELINE_HEARTBEAT_S": "1",
        "PIPELINE_MAX_INTERRUPTIONS": "1000",
        "SLOT_LOG": f"{folder}/attempts.log",
    }


def engine_of(folder: Path, limit: int, workers: int, **more: str) -> InProcessEngine:
    steps = [
        StepDispatchEntry(
            step_type=name,
            handler=f"{__name__}:{name}",
            agent_timeout=timedelta(seconds=30),
            dispatch_deadline=timedelta(seconds=60),
            heartbeat_interval=timedelta(seconds=1),
            isolation="inline",
            limits=(Limit(f"{name}:{{given.model}}", at_once=limit, adaptive=name == "adapt"),),
        )
        for name in ("call", "adapt")
    ]
    return InProcessEngine(
        Registry("dispatch", steps),
        Registry(
            "pipelines", [PipelineEntry(name=it.step_type, steps=(it.step_type,)) for it in steps]
        ),
        environ={**settings(folder), **more},
        workers=workers,
    )


def call(ctx: StepContext, given: Any) -> Any:
    """Note that a call begins, take some time, and note that it is over."""
    note("begin", ctx.run_id)
    if MEANWHILE:
        MEANWHILE.pop()()
    time.sleep(float(os.environ[WORK_S]))
    note("end", ctx.run_id)
    return given


def adapt(ctx: StepContext, given: Any) -> Any:
    """Do the same; the first attempt of some is refused by the provider."""
    call(ctx, given)
    if given["refused"] and ctx.attempt == 1:
        raise AgentClientError("busy", code="rate_limited", retry_after=RETRY_AFTER_S)
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


class LethalDocuments(Wrapped[Documents]):
    """The store of a worker that is killed once a run is over, before it does anything else."""

    def transact(self, *given: Any, **named: Any) -> Committed[Any]:
        committed: Committed[Any] = self.inner.transact(*given, **named)
        if committed.snapshot and committed.snapshot.document.get("status") == "COMPLETED":
            os.kill(os.getpid(), signal.SIGKILL)
        return committed


def die_before_the_call(folder: Path, holder: str, waits: str) -> None:
    """Run one to its end, while another comes to its limit, and die before that one is called."""
    os.environ.update({**settings(folder), WORK_S: "0"})
    with engine_of(folder, limit=1, workers=0) as local:
        engine = replace(local.engine, documents=cast(Any, LethalDocuments(local.engine.documents)))
        MEANWHILE.append(lambda: execute_step(engine, Hint(waits, 1)))
        execute_step(engine, Hint(holder, 1))
