"""Announcements as lines of the structured log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from leasehold.domain.announcement import Priority
from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import announced_facts


class LogSender:
    """Logs each announcement.

    Args:
        report: logs the facts of an event.
        base_url: where the runs API is, for the links.
    """

    def __init__(self, report: Callable[[Mapping[str, Any]], object], base_url: str) -> None:
        self._report = report
        self._base_url = base_url

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
