"""Channels, by their kind; each is imported where it is opened."""

from leasehold.adapters.channels.factory import ChannelOpener

__all__ = ["ChannelOpener"]
