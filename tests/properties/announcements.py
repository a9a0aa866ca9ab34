"""The announcements of a run: one for each end and each block, and no others.

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
from leasehold.domain.status import Outcome, RunStatus
from tests.properties.model import GRACE

#: Who is told, from one deploy to the next; `ops` only of what somebody has to do. None: no
#: catalog is there for those who cancel, the one thing that needs none.
CHANNELS = (("log", "ops"), ("log",), (), None)
_URGENT_ONLY = "ops"


class Announcements:
    """The channels of each event, and what each was owed so far.

    Attributes:
        channels: those of the deploy.
        deliveries: what is stored, by its name.
        ends: how often each run ended, and how often it blocked.
    """

    def __init__(self) -> None:
        self.channels: tuple[str, ...] | None = CHANNELS[0]
        self.deliveries: dict[str, Delivery] = {}
        self.told: Counter[tuple[str, str]] = Counter()

    def channels_for(self, _: str, event: AnnouncedEvent) -> tuple[str, ...] | None:
        if self.channels is None and event == "run_cancelled":
            return None
        is_urgent = event in ("run_blocked", "run_dead_lettered")
        return tuple(name for name in self.channels or () if is_urgent or name != _URGENT_ONLY)

    def committed(self, before: Manifest, change: Change) -> None:
        """Check what a change owes the channels, and store it."""
        after, was = change.manifest, before.announcement
        happened = _expected(before, after) if change.changed else None
        event = happened or (self._left(before, after) if change.changed else None)
        names = None if event is None else self.channels_for("letters", event)
        assert [one.channel for one in change.deliveries] == [*(names or ())]
        puts = as_write(change).puts or {}
        ledger = [] if change.ledger is None else [change.ledger.run_id]
        names_put = [*(one.delivery_id for one in change.deliveries), *ledger]
        assert [ref.id for ref in puts] == names_put
        messages = [effect for effect in change.owed if isinstance(effect, EventMessage)]
        if change.outcome is Outcome.STEP_UNKNOWN:
            assert messages == [], "that is for those who know the step"
        elif not change.deliveries:
            assert messages == [*owed_messages(after)]
        else:
            assert messages == [*map(EventMessage, change.deliveries)]
        if happened is not None:
            self.told[after.run_id, "block" if happened == "run_blocked" else "end"] += 1
            assert self.told[after.run_id, "end"] <= 1, "a run ends once"
            assert (after.announcement is None) is (names == () and was is None)
        elif event is None or names is None:
            assert after.announcement == was
        if (told := after.announcement) is not None and event is not None:
            assert told.pending is (names is None)
        for delivery in change.deliveries:
            self._store(delivery, event, after)

    def _left(self, before: Manifest, after: Manifest) -> AnnouncedEvent | None:
        """Return the announcement that a command without a catalog left to this change."""
        told = before.announcement
        if told is None or not told.pending:
            return None
        assert (told.event, after.cancelled) == ("run_cancelled", True)
        return AnnouncedEvent.RUN_CANCELLED

    def _store(self, delivery: Delivery, event: AnnouncedEvent | None, run: Manifest) -> None:
        told = run.announcement
        assert told is not None
        assert delivery.delivery_id not in self.deliveries, "no two have one occurrence"
        assert (delivery.occurrence, delivery.event) == (told.occurrence, event)
        assert delivery.occurrence.partition(".")[0] == str(run.fencing_token)
        assert (delivery.state, delivery.alarm_at) == (DeliveryState.DUE, run.updated_at + GRACE)
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
    """Return what happened: the run ended, or came to a block under its own generation."""
    if before.is_terminal:
        return None
    if after.is_terminal:
        ends = {"cancelled": after.cancelled, "dead_lettered": after.dead_lettered}
        return AnnouncedEvent(
            f"run_{next((name for name, is_so in ends.items() if is_so), 'completed')}"
        )
    blocks = (after.block is not None, after.position.dispatch.generation)
    was = (before.block is not None, before.position.dispatch.generation)
    assert (after.block is not None) is (after.status is RunStatus.BLOCKED)
    if after.block is None or blocks == was or after.block.looks:
        return None
    return AnnouncedEvent.RUN_BLOCKED
