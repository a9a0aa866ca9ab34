from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from leasehold.domain.timestamps import moment_of, time_or_date

NOW = datetime(2026, 11, 22, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-22", datetime(2026, 11, 22, tzinfo=UTC)),
        ("2026-11-22T06:00:00Z", datetime(2026, 11, 22, 6, tzinfo=UTC)),
        ("2026-11-22T06:00+02:00", datetime(2026, 11, 22, 4, tzinfo=UTC)),
        ("2026-11-22T06:00:00.25Z", datetime(2026, 11, 22, 6, 0, 0, 250_000, UTC)),
        ("0s", NOW),
        ("90s", NOW - timedelta(seconds=90)),
        ("15m", NOW - timedelta(minutes=15)),
        ("2h", NOW - timedelta(hours=2)),
        ("3d", NOW - timedelta(days=3)),
        ("4w", NOW - timedelta(weeks=4)),
    ],
)
def test_a_moment_is_a_time_a_date_or_an_age(text: str, moment: datetime) -> None:
    assert moment_of(text, NOW) == moment
    assert moment_of(text, NOW.astimezone(timezone(timedelta(hours=5)))) == moment


ODD = ("", "2", "h", "-2h", "2 h", "2H", "1.5h", "٢h", "2h3m", "yesterday", "2026-13-01", "\ud800")
NO_ZONE = ("2026-11-22T06:00:00", "20261122", "2026-W47", "2026-11-22 06:00Z", "9" * 5_000 + "d")
NO_CALENDAR = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "999999w", "2026-02-30")


@pytest.mark.parametrize("text", ODD + NO_ZONE + NO_CALENDAR, ids=lambda text: ascii(text[:30]))
def test_what_could_mean_several_moments_or_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(it names no moment|.*day.*|.*month.*)$"):
        moment_of(text, NOW)


def test_an_age_is_no_time() -> None:
    """Over HTTP it is unknown whose clock it would be of."""
    with pytest.raises(ValueError, match="it names no moment"):
        time_or_date("2h")
