"""A function of a user, which is called with each announcement."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from leasehold.adapters.channels.bounded_call import BoundedCall
from leasehold.domain.delivery import MAX_MESSAGE_ID_CHARS, Delivery
from leasehold.domain.event_message import EventMessage
from leasehold.domain.printable import printable
from leasehold.errors import ChannelUnavailableError, SenderNotFoundError
from leasehold.registry.channels import CustomChannel

if TYPE_CHECKING:
    from leasehold.adapters.channels.factory import ChannelOpener


class CustomSender:
    """Calls a function with each announcement.

    Args:
        entry: the channel.
        opener: finds the function.
    """

    def __init__(self, entry: CustomChannel, opener: ChannelOpener) -> None:
        self._entry = entry
        self._opener = opener

    def send(self, delivery: Delivery, *, timeout: float) -> str | None:
        """Call the function; return what it calls the message, if that is a text."""
        call = BoundedCall(self._entry.name, timeout)
        return call.run(partial(self._send, call, delivery))

    def _send(self, call: BoundedCall, delivery: Delivery) -> str | None:
        try:
            function = self._opener.find_sender(self._entry)
        except SenderNotFoundError as error:  # another deploy may have it
            raise ChannelUnavailableError(
                channel=self._entry.name, problem=error.message.rstrip(".")
            ) from None
        message = EventMessage(delivery).content(self._opener.base_url)
        call.begin_sending()
        name = function(message, call.seconds_left())
        return printable(name[:MAX_MESSAGE_ID_CHARS]) if isinstance(name, str) else None
