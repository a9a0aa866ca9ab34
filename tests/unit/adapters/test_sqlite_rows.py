"""A column of a row: what each version of a rolling deploy writes into the same index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from leasehold.adapters.sqlite.rows import to_column


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (datetime(2026, 1, 1, 12, tzinfo=UTC), "2026-01-01T12:00:00.000000+00:00"),
        (datetime(2026, 1, 1, 12, 0, 0, 10, UTC), "2026-01-01T12:00:00.000010+00:00"),
        (datetime(2026, 1, 1, 12, 0, 0, 120_000, UTC), "2026-01-01T12:00:00.120000+00:00"),
        (
            datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))),
            "2025-12-31T23:00:00.000000+00:00",
        ),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000+00:00"),
    ],
)
def test_a_column_has_each_time_in_as_many_digits_and_in_utc(time: datetime, text: str) -> None:
    assert to_column(time) == text
