"""A bus that hangs: whom it holds up, and for how long it is let alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from leasehold.domain.event_message import EventMessage
from leasehold.errors import StoreUnavailableError
from leasehold.testing import FrozenClock
from leasehold.worker.bounded_sends import BoundedEvents
from tests.worlds.builders import message


class AwayBus:
    """A bus that takes nothing, and so many seconds to say so."""

    def __init__(self, clock: FrozenClock, seconds: float) -> None:
        self.asked = 0
        self._clock = clock
        self._takes = timedelta(seconds=seconds)

    def publish(self, _: Sequence[EventMessage]) -> None:
        self.asked += 1
        self._clock.advance(self._takes)
        raise StoreUnavailableError(store="bus", problem="away")

    def close(self, grace: float = 0.0) -> bool:  # noqa: ARG002 - nothing is under way
        return True


def publish(events: BoundedEvents, times: int) -> None:
    for _ in range(times):
        with pytest.raises(StoreUnavailableError):
            events.publish([message("r-1")])


def test_a_bus_that_hangs_holds_up_one_run_and_not_each_that_ends() -> None:
    clock = FrozenClock()
    bus = AwayBus(clock, seconds=5)
    events = BoundedEvents(bus, clock)

    publish(events, times=9)
    assert bus.asked == 1

    clock.advance(timedelta(seconds=21))
    publish(events, times=9)
    assert bus.asked == 2


def test_a_bus_that_refuses_at_once_is_asked_each_time() -> None:
    clock = FrozenClock()
    bus = AwayBus(clock, seconds=0)

    publish(BoundedEvents(bus, clock), times=3)

    assert bus.asked == 3
