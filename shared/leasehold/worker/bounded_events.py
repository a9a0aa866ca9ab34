"""An event bus that keeps nobody waiting: what hangs goes on without the caller."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from leasehold.domain.event_message import EventMessage
from leasehold.errors import StoreUnavailableError
from leasehold.ports.event_bus import EventBus
from leasehold.worker.errands import Errands


class BoundedEvents:
    """Publishes in a thread of its own, and waits for it only so long.

    Its threads are nobody else's: files that cannot be deleted keep no message from being sent.

    Args:
        bus: where the messages go.
        errands: how long is waited, and how many calls may hang.
    """

    def __init__(self, bus: EventBus, errands: Errands | None = None) -> None:
        self._bus = bus
        self._errands = errands or Errands()

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Publish the messages, or raise StoreUnavailableError: they may be taken yet, or not."""
        if not self._errands.run(partial(self._bus.publish, messages)):
            raise StoreUnavailableError(store="event bus", problem="it has not answered yet")

    def close(self, grace: float = 0.0) -> bool:
        """Close the bus."""
        return self._bus.close(grace)
