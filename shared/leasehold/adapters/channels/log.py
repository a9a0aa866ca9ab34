"""Announcements as lines of the structured log."""

from __future__ import annotations

import json
import logging
from typing import Final

from leasehold.domain.announcement import Priority
from leasehold.domain.delivery import Delivery
from leasehold.domain.event_message import announced_facts

_LOG: Final = logging.getLogger("leasehold.announcements")


class LogSender:
    """Logs each announcement."""

    def send(self, delivery: Delivery, *, timeout: float) -> None:  # noqa: ARG002 - nothing is awaited
        """Log the announcement; a log gives it no name."""
        level = logging.WARNING if delivery.priority == Priority.HIGH else logging.INFO
        _LOG.log(level, json.dumps(announced_facts(delivery, ""), ensure_ascii=False))
