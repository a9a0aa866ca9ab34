"""The channel port: what tells people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leasehold.domain.delivery import Delivery


class Channel(Protocol):
    """Sends announcements to one provider."""

    def send(self, delivery: Delivery, *, timeout: float) -> str | None:
        """Send one announcement; return the provider's name for the message, where it gives one.

        Args:
            delivery: what to tell; its `key` is the same at each try of the same announcement.
            timeout: seconds in total, after which to give up.

        Raises:
            ChannelRefusedError: the provider refused it for good: trying again cannot help.
            ChannelUnavailableError: it was not taken, and may be later.
            ChannelUnansweredError: it is unknown whether it was taken.
        """
        ...


class Sending(Protocol):
    """Makes a send, and comes back in time whatever the channel does."""

    def __call__(self, channel: str, send: Callable[[], object], *, timeout: float) -> str | None:
        """Make a send; return the provider's name for the message, as it can be kept.

        What a channel raises comes out as one of the errors below, in words that can be kept and
        shown: one line, without secrets.

        Args:
            channel: whose send it is; what hangs of one channel delays no other.
            send: the send.
            timeout: seconds that it has; what it answers later changes nothing.

        Raises:
            ChannelRefusedError, ChannelUnavailableError: as `Channel.send`.
            ChannelUnansweredError: as `Channel.send`, or it did not come back, or raised anything
                else.
            StoreUnavailableError: this process has no thread for it now; nothing was sent.
        """
        ...
