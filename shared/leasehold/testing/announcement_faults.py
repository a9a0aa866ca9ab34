"""Faults of announcements: of the messages on their way, and of the channels that take them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from leasehold.domain.delivery import DeliveryState
from leasehold.domain.stored import Document, Ref
from leasehold.ports.clock import Clock
from leasehold.testing.arguments import checked_seconds, refuse
from leasehold.testing.orders import Order, Orders

_LONGEST_S: Final = 30 * 86_400.0


class AnnouncementFaults(ABC):
    """Orders of faults of announcements; `channel=None` means any channel.

    Each is for an engine with workers=0, whose announcements are made by the test's own thread.
    """

    clock: Clock
    channels: Callable[[], Sequence[str]]
    workers: Callable[[], int]
    is_ordered: bool
    _orders: Orders
    _away: dict[str, float]

    # -- orders ------------------------------------------------------------------------------------

    def lose_message(self, channel: str | None = None) -> None:
        """Lose the next message that is published: the sweep publishes it again after the grace."""
        self._order_announcement("lose message", channel)

    def deliver_message_twice(
        self, channel: str | None = None, *, concurrently: bool = False
    ) -> None:
        """Deliver a message twice: once more after it was sent, or while it is being sent."""
        self._order_announcement("deliver message twice", channel, concurrently=concurrently)

    def channel_away(self, seconds: float, channel: str | None = None) -> None:
        """Have a provider refuse connections for so long from now on, by the engine's clock."""
        self._check_channel(channel)
        seconds = checked_seconds("seconds", seconds, _LONGEST_S, zero=False)
        self.is_ordered = True
        for name in self.channels() if channel is None else (channel,):
            self._away[_away(name)] = self.clock.monotonic() + seconds

    def channel_late(self, seconds: float, channel: str | None = None) -> None:
        """Have a provider take an announcement, and answer so late.

        After the timeout of the send no one hears that: it is sent again, with the same key.
        """
        seconds = checked_seconds("seconds", seconds, _LONGEST_S, zero=False)
        self._order_announcement("channel late", channel, seconds=seconds)

    def channel_silent(self, channel: str | None = None) -> None:
        """Have a provider take an announcement and end the connection without an answer."""
        self._order_announcement("channel silent", channel)

    def channel_refuses(self, channel: str | None = None) -> None:
        """Have a provider refuse an announcement for good: it is given up."""
        self._order_announcement("channel refuses", channel)

    def kill_before_record(self, channel: str | None = None) -> None:
        """Kill the process that announces when the provider has answered, before that is recorded.

        Its claim runs out, and the announcement is sent again, with the same key.
        """
        self._order_announcement("kill before record", channel)

    # -- what happens, as the bus and the channels of the engine tell it ---------------------------

    def takes(self, kind: str, channel: str, *, concurrently: bool = False) -> Order | None:
        """Return an order of a fault that this announcement fits; it happens now."""
        return self._orders.take(kind, channel, concurrently=concurrently)

    def is_away(self, channel: str) -> bool:
        """Return whether a provider refuses connections now."""
        return self.clock.monotonic() < self._away.get(_away(channel), 0.0)

    def before_write(self, ref: Ref, document: Document | None) -> None:
        """Hear of a document that is decided and not written."""
        if ref.collection != "deliveries" or document is None:
            return
        is_record = document.get("state") == DeliveryState.ANNOUNCED
        if is_record and self.takes("kill before record", str(document.get("channel"))):
            self.kill_process()

    @abstractmethod
    def kill_process(self) -> NoReturn:
        """Let the process that this thread plays be dead."""

    # -- inside ------------------------------------------------------------------------------------

    def _order_announcement(
        self, kind: str, channel: str | None, *, seconds: float = 0.0, concurrently: bool = False
    ) -> None:
        self._check_channel(channel)
        self.is_ordered = True
        order = Order(kind, channel, seconds=seconds, concurrently=concurrently, place="channel")
        self._orders.add(order)

    def _check_channel(self, channel: str | None) -> None:
        known = self.channels()
        if not known or (channel is not None and channel not in known):
            refuse("channel", channel, ", ".join(known) or "none: the catalog has no channels")
        if self.workers():
            refuse("workers", self.workers(), "0, for an engine of which this fault is ordered")


def _away(channel: str) -> str:
    return f"channel {channel}"
