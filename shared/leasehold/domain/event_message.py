"""Messages of the event bus: the hint that a delivery is due, as CloudEvents-shaped JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from leasehold.domain.delivery import (
    MAX_DELIVERY_DETAIL_CHARS,
    MAX_DELIVERY_REASON_CHARS,
    MAX_OUTPUT_SUMMARY_CHARS,
    Delivery,
)
from leasehold.domain.printable import one_line
from leasehold.domain.signal_link import link_to
from leasehold.domain.timestamps import moment_text
from leasehold.frozen import dataclass

#: What stands before the event in the type of a message.
TYPE_PREFIX: Final = "leasehold."

#: Characters of an attribute: a bus that takes 1,024 bytes would refuse all messages of its call.
_MAX_ATTRIBUTE_CHARS: Final = 256
_MAX_CHARS_OF: Final = {
    "summary": MAX_OUTPUT_SUMMARY_CHARS,
    "reason": MAX_DELIVERY_REASON_CHARS,
    "detail": MAX_DELIVERY_DETAIL_CHARS,
}


@dataclass(frozen=True, slots=True)
class EventMessage:
    """One message to `deliver_notification`; what is sent, the delivery says and not the message.

    Args:
        delivery: what it is about, as it was when the message was made.
    """

    delivery: Delivery

    def attributes(self) -> dict[str, str]:
        """Return what subscriptions may filter by."""
        about = self.delivery
        return {
            "event": one_line(str(about.event), _MAX_ATTRIBUTE_CHARS),
            "channel": one_line(about.channel, _MAX_ATTRIBUTE_CHARS),
            "pipeline": one_line(about.pipeline, _MAX_ATTRIBUTE_CHARS),
            "priority": one_line(str(about.priority), _MAX_ATTRIBUTE_CHARS),
        }

    def content(self, base_url: str) -> Mapping[str, Any]:
        """Return the message as it is published.

        Args:
            base_url: where the runs API is, for the links; empty: not known, and they are paths.
        """
        about = self.delivery
        return {
            "specversion": "1.0",
            "id": about.key,
            "source": f"leasehold/pipelines/{about.pipeline}",
            "type": f"{TYPE_PREFIX}{about.event}",
            "subject": about.run_id,
            "time": moment_text(about.created_at),
            "datacontenttype": "application/json",
            "data": announced_facts(about, base_url),
        }

    def encoded(self, base_url: str) -> bytes:
        """Return `content` as JSON in UTF-8; half a character of a text, which has none, is `?`."""
        return json.dumps(self.content(base_url), ensure_ascii=False).encode("utf-8", "replace")


def announced_facts(delivery: Delivery, base_url: str) -> Mapping[str, Any]:
    """Return the announcement: the event and a link, never an input or an output.

    Of the output of a completed run it has the summary that the author of the pipeline makes.
    Each text is one line that is safe to display, of a bounded length: every channel relies on
    it.
    """
    run = f"{base_url}/runs/{delivery.run_id}"
    texts = {
        "runId": delivery.run_id,
        "pipeline": delivery.pipeline,
        "event": str(delivery.event),
        "occurrence": delivery.occurrence,
        "channel": delivery.channel,
        "priority": str(delivery.priority),
        "step": delivery.step,
        "summary": delivery.summary,
        "reason": delivery.reason,
        "detail": delivery.detail,
    }
    facts = {
        name: one_line(text, _MAX_CHARS_OF.get(name, _MAX_ATTRIBUTE_CHARS))
        for name, text in texts.items()
        if text is not None
    }
    links = {"run": run, "why": f"{run}/why", "trace": f"{run}/trace"}
    if delivery.signal is not None and (link := _link_to_signal(delivery, base_url)):
        links["signal"] = link
    return {**facts, "links": links}


def _link_to_signal(delivery: Delivery, base_url: str) -> str | None:
    """Return the signed link by which its reader sends the signal; None: there is none."""
    return link_to(
        base_url,
        run_id=delivery.run_id,
        life=delivery.mark,
        name=str(delivery.signal),
        since=delivery.due_since,
    )
