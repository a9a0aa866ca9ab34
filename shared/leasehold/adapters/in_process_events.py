"""The event bus port inside one process. It keeps nothing: deliveries are the outbox."""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.domain.event_message import EventMessage


class UndeliveredEvents:
    """For a process that delivers nothing: deliveries stay due, and the sweep sees to them."""

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Forget the messages."""
