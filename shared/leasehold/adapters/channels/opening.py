"""Opens what sends to a channel, and imports no other kind."""

# ruff: noqa: PLC0415 - a cold start pays only for the channels it uses

from __future__ import annotations

from leasehold.errors import ChannelUnavailableError
from leasehold.ports.channel import Channel
from leasehold.registry.channels import ChannelEntry, LogChannel


def open_channel(entry: ChannelEntry) -> Channel:
    """Return what sends to a channel.

    Raises:
        ChannelUnavailableError: something is missing that it needs here.
    """
    if isinstance(entry, LogChannel):
        from leasehold.adapters.channels.log import LogSender

        return LogSender()
    problem = f"nothing sends to channels of class {type(entry).__name__}"
    raise ChannelUnavailableError(channel=entry.name, problem=problem)
