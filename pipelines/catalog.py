"""What this bundle runs: gates, steps, the pipelines that put them in order, and who is told."""

import os
from datetime import timedelta
from typing import Final

from leasehold import GateEntry, PipelineEntry, Registry, StepDispatchEntry, TrialPolicy
from pipelines.review.channels import channels_of

GATES: Final = Registry(
    "gates",
    [
        GateEntry(name="format_compliance", check="pipelines.review.gates:format_compliance"),
        GateEntry(name="citation_coverage", check="pipelines.review.gates:citation_coverage"),
    ],
)

STEPS: Final = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="extraction",
            handler="pipelines.review.extraction:extract",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
        ),
        StepDispatchEntry(
            step_type="synthesis",
            handler="pipelines.review.synthesis:synthesize",
            agent_timeout=timedelta(minutes=25),
            dispatch_deadline=timedelta(minutes=30),
            gates=("format_compliance", "citation_coverage"),
            entry_actions=("pipelines.review.task_config:rewrite",),
        ),
        StepDispatchEntry(
            step_type="review",
            handler="pipelines.review.review:supervise",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
        ),
        StepDispatchEntry(
            step_type="publish",
            handler="pipelines.review.publish:publish",
            agent_timeout=timedelta(minutes=2),
            dispatch_deadline=timedelta(minutes=4),
        ),
    ],
)

PIPELINES: Final = Registry(
    "pipelines",
    [
        PipelineEntry(
            name="review",
            steps=("extraction", "synthesis", "review", "publish"),
            trials=TrialPolicy(author="synthesis", reviewer="review", max_trials=3),
        )
    ],
)

CHANNELS: Final = channels_of(os.environ)
