"""One queue as a pure state machine: no threads, and time is a value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from leasehold.devserver.cloud_tasks.faults import Fault, OrderedFault
from leasehold.devserver.cloud_tasks.queue import (
    Queue,
    QueueSettings,
    RateLimiter,
    RateLimits,
)
from leasehold.devserver.cloud_tasks.request import ApiError
from leasehold.devserver.cloud_tasks.task import Attempt, DeliveryResult, HttpTask, RetryConfig

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD, BAD = DeliveryResult(200), DeliveryResult(500)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def task(name: str, after: float = 0) -> HttpTask:
    return HttpTask(name=name, url="http://worker", not_before=NOW + seconds(after))


def queue(retry: RetryConfig | None = None, rate: RateLimits | None = None) -> Queue:
    settings = QueueSettings(retry or RetryConfig(), rate or RateLimits())
    return Queue("projects/p/locations/l/queues/q", settings, NOW)


def fault(kind: Fault, delay: float = 1) -> OrderedFault:
    return OrderedFault(kind, queue=None, containing="", seconds=delay)


def started(queue: Queue, after: float = 0) -> Attempt:
    attempt = queue.start(NOW + seconds(after))
    assert attempt is not None
    return attempt


def names_due(queue: Queue, after: float = 0) -> list[str]:
    return [it.task.name for it in iter(lambda: queue.start(NOW + seconds(after)), None)]


def test_the_waits_double_then_grow_steadily_and_stay_at_the_longest() -> None:
    """The numbers of the service's own documentation for 10 s, 300 s and 3 doublings."""
    retry = RetryConfig(min_backoff=seconds(10), max_backoff=seconds(300), max_doublings=3)

    waits = [retry.wait(attempts).total_seconds() for attempts in range(1, 9)]

    assert waits == [10, 20, 40, 80, 160, 240, 300, 300]


def test_by_default_the_waits_double_from_a_tenth_of_a_second_to_an_hour() -> None:
    waits = [RetryConfig().wait(attempts).total_seconds() for attempts in (1, 2, 3, 16, 17, 99)]

    assert waits == [0.1, 0.2, 0.4, 3276.8, 3600, 3600]


@pytest.mark.parametrize(
    ("attempts", "duration", "tried", "tried_for", "over"),
    [
        (3, 0, 2, 999, False),
        (3, 0, 3, 0, True),
        (3, 60, 3, 59, False),
        (3, 60, 2, 61, False),
        (3, 60, 3, 60, True),
        (-1, 60, 99, 59, False),
        (-1, 60, 99, 60, True),
        (-1, 0, 9999, 99999, False),
    ],
)
def test_a_queue_gives_up_only_when_both_limits_are_reached(
    attempts: int, duration: int, tried: int, tried_for: int, over: bool
) -> None:
    retry = RetryConfig(max_attempts=attempts, max_retry_duration=seconds(duration))

    assert retry.gives_up(tried, seconds(tried_for)) is over


def test_each_retry_waits_from_the_answer_on() -> None:
    steps = queue(RetryConfig(min_backoff=seconds(10), max_backoff=seconds(300), max_doublings=3))
    steps.add(task("a"), NOW)
    at, waits = 0.0, []

    for _ in range(4):
        attempt = started(steps, at)
        again = steps.finished(attempt, BAD, NOW + seconds(at + 5))
        assert again is not None
        waits.append((again - NOW).total_seconds() - at - 5)
        assert steps.start(again - seconds(0.001)) is None
        at = (again - NOW).total_seconds()

    assert waits == [10, 20, 40, 80]


def test_a_task_has_the_retries_it_was_created_with_and_not_those_of_its_queue() -> None:
    steps = queue()
    own = HttpTask("a", "http://worker", NOW, retry=RetryConfig(max_attempts=1))
    steps.add(own, NOW)

    assert steps.finished(started(steps), BAD, NOW) is None
    assert not steps.tasks


def test_tasks_come_by_their_time_and_those_of_one_time_in_the_order_they_were_added() -> None:
    steps = queue()
    for name, after in [("late", 2.0), ("first", 0.0), ("second", 0.0), ("mid", 1.0)]:
        steps.add(task(name, after), NOW)

    assert names_due(steps) == ["first", "second"]
    assert steps.next_time() == NOW + seconds(1)
    assert names_due(steps, 2) == ["mid", "late"]


def test_a_name_is_used_up_while_its_task_is_there_and_for_a_day_after() -> None:
    steps = queue()
    steps.add(task("a"), NOW)
    with pytest.raises(ApiError, match="already exists"):
        steps.add(task("a"), NOW)

    steps.finished(started(steps), GOOD, NOW)

    with pytest.raises(ApiError, match="already exists"):
        steps.add(task("a"), NOW + timedelta(hours=23))
    assert steps.add(task("a"), NOW + timedelta(hours=24))


def test_no_more_deliveries_run_at_once_than_the_queue_allows() -> None:
    steps = queue(rate=RateLimits(max_concurrent_dispatches=2))
    for name in "abc":
        steps.add(task(name), NOW)
    first = started(steps)
    started(steps)

    assert steps.start(NOW) is None
    assert steps.next_time() is None

    steps.finished(first, GOOD, NOW)
    assert started(steps).task.name == "c"


def test_after_its_burst_a_queue_goes_at_its_rate() -> None:
    steps = queue(rate=RateLimits(max_dispatches_per_second=2))
    for number in range(14):
        steps.add(task(f"t{number}"), NOW)

    counts = [len(names_due(steps, after)) for after in (0, 0.4, 0.5, 0.9, 1.5, 60)]

    assert counts == [10, 0, 1, 0, 2, 1]


def test_a_429_or_503_rests_the_whole_queue_longer_each_time_until_it_goes_well() -> None:
    steps = queue(RetryConfig(min_backoff=seconds(0), max_backoff=seconds(0)))
    steps.add(task("a"), NOW)
    at, rests = 0.0, []

    for status in (429, 503, 429, 500, 503):
        steps.finished(started(steps, at), DeliveryResult(status), NOW + seconds(at))
        opens = steps.next_time()
        assert opens is not None
        rests.append((opens - NOW).total_seconds() - at)
        at += rests[-1]

    assert rests == [1, 2, 4, 0, 1]


def test_many_429_at_once_count_as_one_and_retry_after_is_considered() -> None:
    steps = queue()
    for name in "abc":
        steps.add(task(name), NOW)
    attempts = [started(steps) for _ in range(3)]

    for attempt in attempts:
        steps.finished(attempt, DeliveryResult(429, retry_after=seconds(30)), NOW)

    assert steps.next_time() == NOW + seconds(30)

    limiter = RateLimiter(RateLimits(), NOW)
    for _ in range(3):
        limiter.finished(DeliveryResult(429), NOW)
    assert limiter.opens_at() == NOW + seconds(1)


def test_a_task_deleted_while_it_is_delivered_does_not_come_again() -> None:
    steps = queue()
    steps.add(task("a"), NOW)
    attempt = started(steps)
    steps.delete("a", NOW)

    assert steps.running == 1
    assert steps.finished(attempt, BAD, NOW) is None
    assert steps.running == 0
    assert steps.next_time() is None


def test_twice_delivers_the_same_again_when_the_first_was_answered() -> None:
    steps = queue()
    steps.add(task("a"), NOW, fault(Fault.TWICE))

    first = started(steps)
    assert steps.start(NOW) is None
    assert steps.finished(first, GOOD, NOW) == NOW
    second = started(steps)

    assert (
        (second.retries, second.previous_status)
        == (first.retries, first.previous_status)
        == (0, None)
    )
    assert steps.finished(second, GOOD, NOW) is None


def test_overlapping_delivers_a_retry_while_the_first_still_runs_and_hears_only_that() -> None:
    steps = queue(rate=RateLimits(max_concurrent_dispatches=1))
    steps.add(task("a"), NOW, fault(Fault.OVERLAPPING, delay=2))

    first = started(steps)
    assert steps.next_time() == NOW + seconds(2)
    second = started(steps, 2)

    assert (second.retries, second.executions, second.previous_status) == (1, 0, None)
    assert steps.finished(first, BAD, NOW + seconds(3)) is None
    assert steps.tasks
    assert steps.finished(second, GOOD, NOW + seconds(4)) is None
    assert not steps.tasks


def test_late_delivers_after_the_time_but_says_the_time_it_should_have_been() -> None:
    steps = queue()
    steps.add(task("a", after=5), NOW, fault(Fault.LATE, delay=3))

    assert steps.next_time() == NOW + seconds(8)
    assert started(steps, 8).eta == NOW + seconds(5)


def test_lost_never_delivers_and_uses_the_name_up() -> None:
    steps = queue()
    steps.add(task("a"), NOW, fault(Fault.LOST))

    assert not steps.tasks
    assert steps.next_time() is None
    with pytest.raises(ApiError):
        steps.add(task("a"), NOW)


def test_reordered_comes_after_the_answer_to_the_next_task() -> None:
    steps = queue()
    steps.add(task("before"), NOW)
    steps.add(task("a"), NOW, fault(Fault.REORDERED, delay=60))
    steps.finished(started(steps), GOOD, NOW)
    assert steps.start(NOW) is None

    steps.add(task("b"), NOW)
    next_one = started(steps)
    assert steps.start(NOW) is None
    steps.finished(next_one, GOOD, NOW)

    assert [next_one.task.name, started(steps).task.name] == ["b", "a"]
    assert [it.kind for it in steps.fired] == [Fault.REORDERED]


def test_a_reordered_task_that_no_other_follows_comes_in_the_end_and_nothing_fired() -> None:
    steps = queue()
    steps.add(task("a"), NOW, fault(Fault.REORDERED, delay=60))

    assert started(steps, 60).task.name == "a"
    assert steps.fired == []
