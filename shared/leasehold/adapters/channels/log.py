"""Announcements as lines of the structured log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.domain.announcement import Priority
from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import announced_facts
from leasehold.registry.channels import LogChannel

if TYPE_CHECKING:
    from leasehold.adapters.channels.factory import ChannelOpener


class LogSender:
    """Logs each announcement.

    Args:
        entry: the channel.
        opener: logs the facts of an event, and knows the address for the links.
    """

    def __init__(self, entry: LogChannel, opener: ChannelOpener) -> None:  # noqa: ARG002 - its name is not logged
        self._report = opener.report
        self._base_url = str(opener.base_url)  # a link in a log is not signed

    def send(self, delivery: Delivery, *, timeout: float) -> None:  # noqa: ARG002 - nothing is awaited
        """Log the announcement; a log gives it no name."""
        self._report(
            {
                "severity": "WARNING" if delivery.priority == Priority.HIGH else "INFO",
                "message": delivery.summary,
                **announced_facts(delivery, self._base_url),
                "event": str(delivery.event).upper(),
                "key": delivery.key,
                "at": delivery.created_at.isoformat(),
            }
        )
