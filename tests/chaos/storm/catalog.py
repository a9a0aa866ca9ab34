"""What the storm runs: each way in which a run ends or blocks, announced over three channels."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from leasehold import (
    CustomChannel,
    GateEntry,
    GatePolicyFailure,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    WebhookChannel,
)
from leasehold.registry.channels import ChannelEntry
from leasehold.registry.pipelines import Catalog
from tests.chaos.storm.sender import DEAF_URL, SECRET, URL

#: Two webhooks, and a sender of a user's own.
CHANNELS: Final = Registry(
    "channels",
    [
        WebhookChannel(name="first", url_variable=URL, secret_variable=SECRET),
        WebhookChannel(name="second", url_variable=URL, secret_variable=SECRET),
        CustomChannel(name="third", sender="tests.chaos.storm.sender:send"),
    ],
)
NAMES: Final = tuple(entry.name for entry in CHANNELS)


def deaf(entry: ChannelEntry) -> ChannelEntry:
    """Return the same channel, with an address without a listener."""
    if isinstance(entry, CustomChannel):
        return replace(entry, sender="tests.chaos.storm.sender:send_to_nobody")
    assert isinstance(entry, WebhookChannel)
    return replace(entry, url_variable=DEAF_URL)


def act(ctx: StepContext, given: dict[str, Any]) -> Any:
    """Do what the run is to end by; it leaves a file, so that its end is archived."""
    ctx.artifacts.put("done.txt", b"done")
    if given["ends"] == "dead":
        raise PermanentError("it cannot be done", code="never")
    return given


def judge(ctx: Any, output: Any) -> None:
    """Refuse what is to block."""
    if output["ends"] == "blocked":
        raise GatePolicyFailure("not_yet", "A person has to look.", "Look.")


CATALOG: Final = Catalog(
    steps=Registry(
        "dispatch",
        [
            StepDispatchEntry(
                step_type="act",
                handler="tests.chaos.storm.catalog:act",
                agent_timeout=timedelta(minutes=1),
                dispatch_deadline=timedelta(minutes=2),
                isolation="inline",
                gates=("judge",),
            )
        ],
    ),
    pipelines=Registry("pipelines", [PipelineEntry(name="act", steps=("act",))]),
    gates=Registry("gates", [GateEntry(name="judge", check="tests.chaos.storm.catalog:judge")]),
    channels=CHANNELS,
)
