"""A pipeline of one step whose runs are announced to a channel of each kind that has secrets."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from leasehold import (
    EmailChannel,
    PipelineEntry,
    Registry,
    SlackChannel,
    StepContext,
    StepDispatchEntry,
    WebhookChannel,
)


def write(ctx: StepContext, given: Any) -> Any:
    """Give what it is given."""
    return given


STEPS = Registry(
    "dispatch",
    [
        StepDispatchEntry(
            step_type="write",
            handler="tests.api.functions.announced_steps:write",
            agent_timeout=timedelta(minutes=1),
            dispatch_deadline=timedelta(minutes=2),
        )
    ],
)
PIPELINES = Registry("pipelines", [PipelineEntry(name="letters", steps=("write",))])
CHANNELS = Registry(
    "channels",
    [
        SlackChannel(name="team", url_variable="TEAM_URL"),
        WebhookChannel(name="hook", url_variable="HOOK_URL", secret_variable="HOOK_SECRET"),  # noqa: S106 - a name
        EmailChannel(name="mail", sender="a@shop.example", recipients=("b@shop.example",)),
    ],
)
