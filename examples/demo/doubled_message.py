"""The doubled message of the demo: a push that comes twice, and a channel that is told once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from leasehold import Client, Manifest, TraceEvent
from leasehold.api.deliveries import DeliveryReport
from leasehold.cli.delivery_line import announced_to
from leasehold.devserver.cloud_tasks.faults import Fault
from leasehold.devserver.events import EventsDouble
from leasehold.domain.delivery import DeliveryState
from leasehold.domain.trace import TraceType

#: An announcement that is not sent by then is sent later, after the demo.
_PATIENCE_S: Final = 10.0
_LOOK_S: Final = 0.05
_UNDER_WAY: Final = (DeliveryState.DUE, DeliveryState.CLAIMED)


class DoubledMessage:
    """Has the bus push the next message a second time, once the first push is answered."""

    def __init__(self, events: EventsDouble) -> None:
        self._events = events
        events.order_fault(Fault.TWICE)

    def account(self, client: Client, run: Manifest) -> tuple[bool, list[str]]:
        """Return whether each announcement arrived once, and lines about it."""
        if run.announcement is None:
            return True, ["none: no channel has this event"]
        deliveries = self._deliveries_at_last(client, run)
        lines = [f"{announced_to(deliveries, client.connection.now())}: {run.announcement.event}"]
        sent = sent_to(client.trace(run))
        if len(sent) > len(set(sent)):
            return False, [*lines, f"not done: it was sent to {', '.join(sent)}"]
        if self._events.fired():
            lines += [
                "its message was pushed twice, and the second push sent nothing:",
                f"the trace says {TraceType.ANNOUNCEMENT_SENT} once for each channel",
            ]
        return True, lines

    def _deliveries_at_last(self, client: Client, run: Manifest) -> list[DeliveryReport]:
        """Return the deliveries once all are over and all pushes answered, or patience is."""
        over_at = time.monotonic() + _PATIENCE_S
        while True:
            found = client.deliveries(run)
            is_over = not any(one.state in _UNDER_WAY for one in found) and self._events.is_idle()
            if is_over or time.monotonic() >= over_at:
                return found
            time.sleep(_LOOK_S)


def sent_to(events: Sequence[TraceEvent]) -> list[str]:
    """Return whom each announcement of a trace was sent to, and of what."""
    facts = [one.model_extra or {} for one in events if one.type == TraceType.ANNOUNCEMENT_SENT]
    return [f"{one.get('channel')} {one.get('occurrence')}" for one in facts]
