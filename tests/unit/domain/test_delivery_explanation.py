"""The announcements of a run that are due or were given up, a sentence for each channel."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.domain.announcement import Announcement
from leasehold.domain.delivery import Claim, Delivery, DeliveryState
from leasehold.domain.explanation import explain_delivery, unannounced
from leasehold.domain.stored import replace

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOON, LATER = NOW + timedelta(seconds=5), NOW + timedelta(seconds=60)
CLAIMED = {"state": DeliveryState.CLAIMED}
CLAIM = Claim(claim_id="c-1", holder="host-a", expires_at=SOON)
STILL = "Channel slack has not received run_completed yet: "


def delivery(**fields: Any) -> Delivery:
    """A delivery that channel slack has been owed for a moment."""
    usable: dict[str, Any] = {
        "run_id": "r-1",
        "occurrence": "1",
        "channel": "slack",
        "pipeline": "letters",
        "event": "run_completed",
        "priority": "normal",
        "step": "send",
        "summary": "Run r-1 is completed.",
        "mark": "m",
        "state": DeliveryState.DUE,
        "created_at": NOW,
        "updated_at": NOW,
        "give_up_at": NOW + timedelta(days=1),
    }
    return Delivery(**(usable | fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"alarm_at": LATER},
            STILL
            + "its message is on its way; the sweep publishes it again at 2026-01-01T12:01:00Z.",
        ),
        ({"alarm_at": NOW}, STILL + "the next sweep publishes its message again."),
        ({}, STILL + "the next sweep publishes its message again."),
        (
            {"not_before": SOON, "alarm_at": SOON, "tries": 1, "last_error": "HTTP 503."},
            STILL + "it is sent again at 2026-01-01T12:00:05Z after 1 try. "
            "Its last error: HTTP 503.",
        ),
        (
            {"not_before": SOON, "tries": 3, "unknown": 2},
            STILL + "it is sent again at 2026-01-01T12:00:05Z after 3 tries. "
            "2 sends may have got through: the result is unknown.",
        ),
        (
            CLAIMED | {"claim": CLAIM, "tries": 1},
            "host-a is sending run_completed to channel slack.",
        ),
        (
            CLAIMED | {"claim": replace(CLAIM, expires_at=NOW), "tries": 1},
            STILL + "its sender did not record the result after 1 try, and the sweep takes it up.",
        ),
        (
            {"state": DeliveryState.GIVEN_UP, "given_up_why": "refused", "last_error": "HTTP 404"},
            (
                "Channel slack did not receive run_completed: refused: HTTP 404. "
                ":deliver sends it once more."
            ),
        ),
        (
            {"state": DeliveryState.GIVEN_UP},
            (
                "Channel slack did not receive run_completed: the reason was not recorded. "
                ":deliver sends it once more."
            ),
        ),
    ],
)
def test_each_state_has_its_sentence(fields: dict[str, Any], words: str) -> None:
    assert explain_delivery(delivery(**fields), NOW, {}) == words


def test_a_breaker_that_is_open_is_named_while_it_is() -> None:
    held = {"slack": LATER, "log": LATER}

    assert explain_delivery(delivery(), NOW, held) == (
        STILL + "the next sweep publishes its message again. "
        "Nothing is sent to it until 2026-01-01T12:01:00Z: its breaker is open."
    )
    assert "breaker" not in explain_delivery(delivery(), LATER, held)


def test_what_was_given_up_counts_while_the_run_has_not_moved_on() -> None:
    """Due deliveries always count: they may still arrive."""
    lost = delivery(state=DeliveryState.GIVEN_UP)
    due, sent = delivery(channel="log"), delivery(state=DeliveryState.ANNOUNCED)
    last = Announcement(occurrence="1", event="run_blocked", at=NOW, channels=("slack",))

    assert unannounced(last, [lost, due, sent]) == [lost, due]
    assert unannounced(replace(last, occurrence="2"), [lost, due, sent]) == [due]  # type: ignore[call-arg]
    assert unannounced(None, [lost, due, sent]) == [due]
