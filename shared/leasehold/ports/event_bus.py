"""The event bus port: where it is said that deliveries are due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from leasehold.domain.event_message import EventMessage


class EventBus(Protocol):
    """Delivers each message to `deliver_notification`, at least once, in any order."""

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Take the messages, all at once: one that is not taken keeps no other from it.

        Raises:
            StoreUnavailableError: some were not taken; all of them may be published again.
        """
        ...

    def close(self, grace: float = 0.0) -> bool:
        """Publish no more; a bus within this process delivers what is due once before.

        Returns:
            Whether that ended within `grace` seconds; what is not delivered stays due.
        """
        ...
