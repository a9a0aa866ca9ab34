"""The bus and the channels of a test: nothing leaves the process, and what was told is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import EventMessage
from leasehold.errors import ChannelRefusedError, ChannelUnansweredError, ChannelUnavailableError
from leasehold.ports.channel import Channel
from leasehold.ports.event_bus import EventBus
from leasehold.registry.channels import ChannelEntry
from leasehold.testing.clock import FrozenClock
from leasehold.testing.faults import Faults


class FaultyEvents:
    """The event bus; messages may be lost on their way in."""

    def __init__(self, inner: EventBus, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def publish(self, messages: Sequence[EventMessage]) -> None:
        """Take the messages that are not lost."""
        lost = [it for it in messages if self._faults.takes("lose message", it.delivery.channel)]
        self._inner.publish([message for message in messages if message not in lost])

    def close(self, grace: float = 0.0) -> bool:
        """Close the bus."""
        return self._inner.close(grace)


class RecordedChannels:
    """All channels of a test; they send nothing.

    Args:
        faults: what providers do in place of taking an announcement.
        deliver: delivers the message of a delivery once more.

    Attributes:
        announcements: what providers took, in order; a provider that goes by the key of one that
            it has already shows it once.
    """

    def __init__(self, faults: Faults, deliver: Callable[[Delivery], object]) -> None:
        self.announcements: list[Delivery] = []
        self._faults = faults
        self._deliver = deliver
        self._once_more: list[Delivery] = []

    def open(self, _: ChannelEntry) -> Channel:
        """Return what sends to a channel: a delivery names its own."""
        return self

    def deliver_once_more(self) -> None:
        """Deliver the messages that come twice a second time."""
        while self._once_more:
            self._deliver(self._once_more.pop(0))

    def send(self, delivery: Delivery, *, timeout: float) -> str:
        """Take an announcement, or do what was ordered in place of that."""
        faults, channel = self._faults, delivery.channel
        if faults.is_away(channel):
            problem = "it is away, as the test ordered"
            raise ChannelUnavailableError(channel=channel, problem=problem)
        if faults.takes("channel refuses", channel):
            problem = "refused for good, as the test ordered"
            raise ChannelRefusedError(channel=channel, problem=problem)
        self._repeat(delivery)
        self.announcements.append(delivery)
        self._answer(channel, timeout)
        return f"message-{len(self.announcements)}"

    def _repeat(self, delivery: Delivery) -> None:
        if self._faults.takes("deliver message twice", delivery.channel, concurrently=True):
            self._deliver(delivery)
        if self._faults.takes("deliver message twice", delivery.channel):
            self._once_more.append(delivery)

    def _answer(self, channel: str, timeout: float) -> None:
        if late := self._faults.takes("channel late", channel):
            _wait(self._faults, min(late.seconds, timeout))
            if late.seconds >= timeout:
                raise ChannelUnansweredError(channel=channel, problem="no answer in time")
        if self._faults.takes("channel silent", channel):
            raise ChannelUnansweredError(channel=channel, problem="no answer, as the test ordered")


def _wait(faults: Faults, seconds: float) -> None:
    if isinstance(faults.clock, FrozenClock):
        faults.clock.advance(seconds)
    else:
        threading.Event().wait(seconds)
