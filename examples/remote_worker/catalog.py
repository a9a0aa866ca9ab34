"""The catalog: documents are gathered here, summarised by a remote worker, and reported here."""

from datetime import timedelta

from leasehold import PipelineEntry, Registry, StepDispatchEntry

STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="gather",
            handler="examples.remote_worker.steps:gather",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        ),
        StepDispatchEntry(
            step_type="summarise",
            handler="remote",  # worker.py claims it
            output="examples.remote_worker.steps:Summaries",  # what its output must fit
            agent_timeout=timedelta(minutes=20),
            dispatch_deadline=timedelta(minutes=25),
            schedule_to_start=timedelta(hours=1),  # without a claim the run is given up
        ),
        StepDispatchEntry(
            step_type="report",
            handler="examples.remote_worker.steps:report",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        ),
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name="digest", steps=("gather", "summarise", "report"))]
)
