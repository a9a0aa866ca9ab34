"""The channel port: what tells people."""

from __future__ import annotations

from typing import Protocol

from leasehold.domain.delivery import Delivery


class Channel(Protocol):
    """Sends announcements to one provider."""

    def send(self, delivery: Delivery, *, timeout: float) -> str | None:
        """Send one announcement; return the provider's name for the message, where it gives one.

        Args:
            delivery: what to tell; its `key` is the same at each try of the same announcement.
            timeout: seconds after which to give up, all told.

        Raises:
            ChannelRefusedError: the provider refused it for good: trying again cannot help.
            ChannelUnavailableError: it was not taken, and may be later.
            ChannelUnansweredError: nobody knows whether it was taken.
        """
        ...
