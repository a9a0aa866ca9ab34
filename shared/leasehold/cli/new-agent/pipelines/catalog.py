"""The catalog: steps, the pipelines that put them in order, and who is told how they end.

Leasehold finds it by its name; LEASEHOLD_CATALOG names another module.
"""

from datetime import timedelta

from leasehold import GateEntry, LogChannel, PipelineEntry, Registry, StepDispatchEntry

GATES: Registry[GateEntry] = Registry("gates", [])

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="research",
            handler="pipelines.research:research",
            agent_timeout=timedelta(minutes=10),  # an agent that takes longer goes on after it
            dispatch_deadline=timedelta(minutes=15),  # after this, the attempt has failed
        ),
    ],
)

PIPELINES = Registry("pipelines", [PipelineEntry(name="research", steps=("research",))])

# Who is told that a run has ended, or waits for a person; Slack, e-mail and webhooks are others.
CHANNELS = Registry("channels", [LogChannel(name="log")])
