"""A step that goes on until a file is there, with rare heartbeats, and one with many."""

from __future__ import annotations

from datetime import timedelta

from leasehold import PipelineEntry, Registry, StepDispatchEntry
from tests.worlds.catalogs import lasting

#: So seldom, no test waits for one.
RARELY = timedelta(minutes=3)


def _step(name: str, heartbeat: timedelta) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{lasting.__name__}:sleeps",
        agent_timeout=timedelta(minutes=10),
        dispatch_deadline=timedelta(minutes=15),
        heartbeat_interval=heartbeat,
    )


STEPS = Registry("dispatch", [_step("rarely", RARELY), _step("often", timedelta(seconds=1))])
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name=one.step_type, steps=(one.step_type,)) for one in STEPS]
)
