"""Times, and texts in one line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from leasehold.domain.printable import one_line
from leasehold.presentation.formatting import StyledText, ago, duration, stamp

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.44, "0.4 s"),
        (12.4, "12 s"),
        (185, "3 min 5 s"),
        (3600, "1 h"),
        (3605, "1 h"),
        (187_200, "2 d 4 h"),
    ],
)
def test_a_span_has_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(timedelta(seconds=seconds)) == text


def test_a_time_is_ago_or_to_come() -> None:
    assert ago(NOON, NOON + timedelta(minutes=3, seconds=5)) == "3 min ago"
    assert ago(NOON + timedelta(hours=2, minutes=1), NOON) == "in 2 h"


def test_a_time_is_shown_in_utc_to_the_millisecond() -> None:
    assert stamp(NOON.astimezone(timezone(timedelta(hours=2)))) == "2026-01-01T12:00:00.000Z"


def test_a_time_that_utc_cannot_write_keeps_its_zone() -> None:
    first = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))

    assert stamp(first) == "0001-01-01T00:00:00.000+14:00"


def test_a_text_is_cut_at_its_limit_and_steers_no_terminal() -> None:
    assert one_line("a\n  b\x1b[2J") == "a b\\x1b[2J"
    assert one_line("abcdef", 4) == "abc…"


def test_a_screen_shows_the_short_form_where_there_is_one() -> None:
    assert StyledText("whole").on_screen == "whole"
    assert StyledText("whole", short_form="short").on_screen == "short"
