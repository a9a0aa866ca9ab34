"""A function of a user, which is called with each announcement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from leasehold.adapters.channels.bounded_call import BoundedCall
from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import EventMessage
from leasehold.domain.printable import printable
from leasehold.errors import ChannelUnavailableError, SenderNotFoundError
from leasehold.registry.channels import CustomChannel

#: What is called: it gets the message and the seconds that it has.
Send = Callable[[Mapping[str, Any], float], object]

_LONGEST_ID: Final = 200


class CustomSender:
    """Calls a function with each announcement.

    Args:
        entry: the channel.
        find: returns the function.
        base_url: see `EventMessage.content`.
    """

    def __init__(
        self, entry: CustomChannel, find: Callable[[CustomChannel], Send], base_url: str
    ) -> None:
        self._entry = entry
        self._find = find
        self._base_url = base_url

    def send(self, delivery: Delivery, *, timeout: float) -> str | None:
        """Call the function; return what it calls the message, if that is a text."""
        call = BoundedCall(self._entry.name, timeout)
        return call.run(partial(self._send, call, delivery))

    def _send(self, call: BoundedCall, delivery: Delivery) -> str | None:
        try:
            function = self._find(self._entry)
        except SenderNotFoundError as error:  # another deploy may have it
            raise ChannelUnavailableError(
                channel=self._entry.name, problem=error.message.rstrip(".")
            ) from None
        message = EventMessage(delivery).content(self._base_url)
        call.begin_sending()
        name = function(message, call.seconds_left())
        return printable(name[:_LONGEST_ID]) if isinstance(name, str) else None
