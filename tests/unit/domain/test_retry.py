"""The waits between failed attempts."""

from datetime import timedelta

import pytest

from leasehold.domain.retry import Backoff


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        (
            Backoff(timedelta(seconds=10), timedelta(seconds=300), 3),
            [10, 20, 40, 80, 160, 240, 300, 300],
        ),
        (Backoff(), [10, 20, 40, 80, 160, 300, 300, 300]),
        (Backoff(doublings=0), [10, 20, 30, 40, 50, 60, 70, 80]),
        (Backoff(minimum=timedelta(seconds=400)), [300] * 8),
    ],
    ids=["three doublings", "the default", "no doubling", "a minimum above the maximum"],
)
def test_the_wait_doubles_then_grows_evenly_up_to_its_maximum(
    backoff: Backoff, waits: list[int]
) -> None:
    """As Cloud Tasks counts its own: after the doublings by the same amount each time."""
    waited = [backoff.wait(failures).total_seconds() for failures in range(1, 9)]

    assert waited == waits


def test_many_failures_do_not_overflow() -> None:
    """A thousand repeats are allowed, and sixteen doublings of a day."""
    longest = Backoff(timedelta(days=1), timedelta(days=1), 16)

    assert longest.wait(1001) == timedelta(days=1)
