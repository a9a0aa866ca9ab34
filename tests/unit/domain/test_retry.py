"""The waits between failed attempts."""

from datetime import UTC, datetime, timedelta

import pytest

from leasehold.domain.dispatch import dispatch_of
from leasehold.domain.manifest_parts import Dispatch, ErrorRecord, RetryRule
from leasehold.domain.retry import Backoff, doubling, wait_after
from tests.worlds.builders import step_settings


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


def test_waits_that_double_go_on_without_end_at_the_longest() -> None:
    waits_s = doubling(timedelta(seconds=0.5), timedelta(seconds=3)).waits_s()

    assert [next(waits_s) for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_many_failures_do_not_overflow() -> None:
    """A thousand repeats are allowed, and sixteen doublings of a day."""
    longest = Backoff(timedelta(days=1), timedelta(days=1), 16)

    assert longest.wait(1001) == timedelta(days=1)


def dispatched(**rule: float) -> Dispatch:
    retry = RetryRule(**rule) if rule else None  # type: ignore[arg-type] # numbers alone
    settings = step_settings(retry=retry)
    return dispatch_of(
        settings,
        step=settings.step_type,
        generation=1,
        trial=1,
        not_before=datetime(2026, 1, 1, tzinfo=UTC),
        nonce="n",
    )


def asking(seconds: float | None) -> ErrorRecord:
    return ErrorRecord(type="E", code="e", message="no", retry_after_s=seconds)


@pytest.mark.parametrize(
    ("rule", "waits"),
    [
        ({"first_s": 1, "factor": 1.5, "max_s": 4}, [1, 1.5, 2.25, 3.375, 4, 4]),
        ({"first_s": 2, "factor": 1, "max_s": 9}, [2] * 6),
        ({}, [10, 20, 40, 80, 160, 300]),
    ],
    ids=["by half more", "always the same", "no policy"],
)
def test_a_policy_has_waits_of_its_own(rule: dict[str, float], waits: list[float]) -> None:
    dispatch = dispatched(**rule)

    waited = [wait_after(None, failures, dispatch, Backoff()) for failures in range(1, 7)]

    assert [wait.total_seconds() for wait in waited] == waits


def test_the_waits_of_a_policy_do_not_overflow() -> None:
    dispatch = dispatched(first_s=1, factor=100, max_s=86_400)

    assert wait_after(None, 1001, dispatch, Backoff()) == timedelta(days=1)


@pytest.mark.parametrize(("asked", "waits"), [(None, 10), (3, 10), (45, 45), (10**9, 86_400)])
def test_an_error_may_ask_for_a_longer_wait_and_for_no_shorter_one(
    asked: float | None, waits: float
) -> None:
    """A provider that says when to come again knows better than the backoff, up to a day."""
    assert wait_after(asking(asked), 1, dispatched(), Backoff()) == timedelta(seconds=waits)
