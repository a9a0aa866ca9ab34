"""A delivery as a run owes it, and what opens channels for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import leasehold
from leasehold.adapters.channels import ChannelOpener
from leasehold.adapters.channels.http_post import Resolve, addresses_of
from leasehold.domain.announcement import AnnouncedEvent, Priority
from leasehold.domain.delivery import Delivery, DeliveryState
from leasehold.domain.stored import replace
from leasehold.ports.clock import Clock
from leasehold.testing import FrozenClock
from leasehold.worker.handler.channel_senders import sender_of

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
KEY = "letters-1:7.2:team:0123abcd"

#: Enough for any answer of this machine; whoever waits for the end of it waits for less.
TIMEOUT_S = 20.0


def delivery(**fields: Any) -> Delivery:
    """The delivery of a run that is blocked for the second time."""
    usable: dict[str, Any] = {
        "run_id": "letters-1",
        "occurrence": "7.2",
        "channel": "team",
        "pipeline": "letters",
        "event": AnnouncedEvent.RUN_BLOCKED,
        "priority": Priority.HIGH,
        "step": "send",
        "summary": "Run letters-1 of pipeline letters is blocked at step send.",
        "reason": "GATE_POLICY_FAILURE",
        "detail": "The letter names no recipient.",
        "mark": "0123abcd",
        "state": DeliveryState.CLAIMED,
        "created_at": NOW,
        "updated_at": NOW,
        "shard": 3,
        "give_up_at": NOW + timedelta(hours=24),
    }
    return replace(Delivery(**usable), **fields)


#: The classes of channels.
KINDS = [getattr(leasehold, name) for name in leasehold.__all__ if name.endswith("Channel")]

#: Short enough to wait for the end of, and longer where a busy machine had not begun by then.
SHORT_S = (0.3, 2.0, 10.0)


def opener(
    environ: Mapping[str, str] | None = None,
    *,
    logged: list[Mapping[str, Any]] | None = None,
    allow_local: bool = True,
    resolve: Resolve = addresses_of,
    clock: Clock | None = None,
    base_url: str = "https://shop.example",
) -> ChannelOpener:
    """The opener of the channels of a bundle whose API is at shop.example."""
    return ChannelOpener(
        environ or {},
        clock or FrozenClock(NOW),
        report=(logged if logged is not None else []).append,
        find_sender=sender_of,
        base_url=base_url,
        allow_local=allow_local,
        resolve=resolve,
    )
