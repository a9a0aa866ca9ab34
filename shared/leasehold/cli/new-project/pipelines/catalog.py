"""The catalog: gates, steps, the pipelines that put them in order, and who is told how they end.

Leasehold finds it by its name; LEASEHOLD_CATALOG names another module.
"""

from datetime import timedelta

from leasehold import GateEntry, LogChannel, PipelineEntry, Registry, StepDispatchEntry

GATES = Registry("gates", [GateEntry(name="has_points", check="pipelines.summary:has_points")])

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="outline",
            handler="pipelines.summary:outline",
            agent_timeout=timedelta(minutes=10),  # what ctx.time_left() counts down from
            dispatch_deadline=timedelta(minutes=15),  # after this, the attempt has failed
            gates=("has_points",),
        ),
        StepDispatchEntry(
            step_type="summarize",
            handler="pipelines.summary:summarize",
            agent_timeout=timedelta(minutes=10),
            dispatch_deadline=timedelta(minutes=15),
        ),
    ],
)

PIPELINES = Registry("pipelines", [PipelineEntry(name="summary", steps=("outline", "summarize"))])

# Who is told that a run has ended, or waits for a person; Slack, e-mail and webhooks are others.
CHANNELS = Registry("channels", [LogChannel(name="log")])
