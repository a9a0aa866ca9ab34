"""A catalog with a step of two hours, which Cloud Tasks does not wait for."""

from __future__ import annotations

from datetime import timedelta

from leasehold import PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="crawl",
            handler="tests.api.devserver.test_broken_chain:measure",
            agent_timeout=timedelta(minutes=110),
            dispatch_deadline=timedelta(hours=2),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="crawl", steps=("crawl",))])
