"""Two steps in processes of their own, one elsewhere, and a channel that hears of the end."""

from __future__ import annotations

from datetime import timedelta

from leasehold import LogChannel, PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type=step_type,
            handler=handler,
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
            limit_strategy=strategy,
        )
        for step_type, handler, strategy in (
            ("draft", "tests.worlds.catalogs.cold_steps:write", None),
            ("print", "tests.worlds.catalogs.cold_steps:write", "propose"),
            ("elsewhere", "remote", None),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="letters", steps=("draft", "print"))])
CHANNELS = Registry("channels", [LogChannel(name="log")])
