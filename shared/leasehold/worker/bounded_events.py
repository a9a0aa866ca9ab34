"""An event bus that keeps nobody waiting: what hangs goes on without the caller."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from leasehold.domain.event_message import EventMessage
from leasehold.errors import StoreUnavailableError
from leasehold.ports.clock import Clock
from leasehold.ports.event_bus import EventBus
from leasehold.worker.errands import Errands

#: A bus that fails only after so long is let alone for a while: each run that ends would wait so
#: long for it again. What is refused meanwhile the sweep publishes.
_SLOW_S: Final = 1.0
_REST_S: Final = 20.0


class BoundedEvents:
    """Publishes in a thread of its own, and waits for it only so long.

    Its threads are nobody else's: files that cannot be deleted keep no message from being sent.

    Args:
        bus: where the messages go.
        clock: for how long it takes.
        errands: how long is waited, and how many calls may hang.
    """

    def __init__(self, bus: EventBus, clock: Clock, errands: Errands | None = None) -> None:
        self._bus = bus
        self._clock = clock
        self._errands = errands or Errands()
        self._rests_until = -math.inf

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Publish the messages, or raise StoreUnavailableError: they may be taken yet, or not."""
        began = self._clock.monotonic()
        if began < self._rests_until:
            raise _unavailable("it did not answer a moment ago, and is not asked now")
        try:
            if not self._errands.run(partial(self._bus.publish, messages)):
                raise _unavailable("it has not answered yet")
        except StoreUnavailableError:
            now = self._clock.monotonic()
            if now - began >= _SLOW_S:
                self._rests_until = now + _REST_S
            raise

    def close(self, grace: float = 0.0) -> bool:
        """Close the bus."""
        self._errands.close()
        return self._bus.close(grace)


def _unavailable(problem: str) -> StoreUnavailableError:
    return StoreUnavailableError(store="event bus", problem=problem)
