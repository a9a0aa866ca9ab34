"""Channels, by their kind; each is imported where it is opened."""

from leasehold.adapters.channels.opening import open_channel

__all__ = ["open_channel"]
