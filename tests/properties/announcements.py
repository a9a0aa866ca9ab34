"""What people are told of a run: once of each end and each block, and of nothing else.

The model knows no lifecycle. It looks at what a run is before and after a change, and keeps what
was stored for each channel.
"""

from __future__ import annotations

from collections import Counter

from leasehold.domain.announcement import AnnouncedEvent
from leasehold.domain.change import Change, as_write
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.effect import owed_messages
from leasehold.domain.event_message import EventMessage
from leasehold.domain.manifest import Manifest
from leasehold.domain.status import RunStatus
from tests.properties.model import GRACE

#: Who is told, from one deploy to the next: nobody, of all, of what somebody has to do.
CHANNELS = ((), ("log",), ("log", "ops"))
_URGENT_ONLY = "ops"


class Announcements:
    """Which channels are told of what, and what each was owed so far.

    Attributes:
        channels: those of the deploy.
        deliveries: what is stored, by its name.
        ends: how often each run ended, and how often it blocked.
    """

    def __init__(self) -> None:
        self.channels: tuple[str, ...] = CHANNELS[-1]
        self.deliveries: dict[str, Delivery] = {}
        self.told: Counter[tuple[str, str]] = Counter()

    def channels_for(self, _: str, event: AnnouncedEvent) -> tuple[str, ...]:
        is_urgent = event in ("run_blocked", "run_dead_lettered")
        return tuple(name for name in self.channels if is_urgent or name != _URGENT_ONLY)

    def committed(self, before: Manifest, change: Change) -> None:
        """Check what a change owes the channels, and store it."""
        after = change.manifest
        event = _expected(before, after) if change.changed else None
        names = () if event is None else self.channels_for("letters", event)
        assert [one.channel for one in change.deliveries] == [*names]
        puts = as_write(change).puts or {}
        assert [ref.id for ref in puts] == [one.delivery_id for one in change.deliveries]
        messages = [effect for effect in change.owed if isinstance(effect, EventMessage)]
        if event is None:
            assert after.announcement == before.announcement
            assert messages == [*owed_messages(after)]
            return
        assert messages == [*map(EventMessage, change.deliveries)]
        self.told[after.run_id, "block" if event == "run_blocked" else "end"] += 1
        assert self.told[after.run_id, "end"] <= 1, "a run ends once"
        told = after.announcement
        assert (told is None) is (not names and before.announcement is None)
        for delivery in change.deliveries:
            assert delivery.delivery_id not in self.deliveries, "no two have one occurrence"
            assert told is not None
            assert (delivery.occurrence, delivery.event) == (told.occurrence, event)
            assert delivery.occurrence.partition(".")[0] == str(after.fencing_token)
            assert (delivery.state, delivery.alarm_at) == (
                DeliveryState.DUE,
                after.updated_at + GRACE,
            )
            self.deliveries[delivery.delivery_id] = delivery

    def check(self, run: Manifest) -> None:
        """Check that the run and the records of its last announcement say the same."""
        told = run.announcement
        if told is None:
            return
        stored = [self.deliveries[f"{run.run_id}:{told.occurrence}:{c}"] for c in told.channels]
        assert all((one.event, one.created_at) == (told.event, told.at) for one in stored)
        keys = {message.delivery.key for message in owed_messages(run)}
        assert keys <= {one.key for one in stored}, "a message is about a record that is there"


def _expected(before: Manifest, after: Manifest) -> AnnouncedEvent | None:
    """Return what happened: the run ended, or came to a block under a generation of its own."""
    if before.is_terminal:
        return None
    if after.is_terminal:
        ends = {"cancelled": after.cancelled, "dead_lettered": after.dead_lettered}
        return AnnouncedEvent(
            f"run_{next((name for name, is_so in ends.items() if is_so), 'completed')}"
        )
    blocks = (after.block is not None, after.dispatch.generation)
    was = (before.block is not None, before.dispatch.generation)
    assert (after.block is not None) is (after.status is RunStatus.BLOCKED)
    return AnnouncedEvent.RUN_BLOCKED if after.block is not None and blocks != was else None
