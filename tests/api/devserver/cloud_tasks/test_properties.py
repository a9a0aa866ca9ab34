"""The pure queue against a model: whatever happens, nothing is lost and nothing comes early."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from leasehold.devserver.cloud_tasks.faults import Fault, OrderedFault
from leasehold.devserver.cloud_tasks.queue import Queue, QueueSettings, RateLimits
from leasehold.devserver.cloud_tasks.task import Attempt, DeliveryResult, HttpTask, RetryConfig

NOW = datetime(2026, 1, 1, tzinfo=UTC)

STATUSES = st.sampled_from([200, 200, 204, 302, 404, 429, 500, 503, None])
FAULTS = st.sampled_from([None, None, *(kind for kind in Fault if kind is not Fault.LOST)])
TASKS = st.lists(st.tuples(st.integers(0, 5), FAULTS), min_size=1, max_size=8)
RETRIES = st.builds(
    RetryConfig,
    max_attempts=st.integers(1, 4),
    max_retry_duration=st.sampled_from([timedelta(), timedelta(seconds=30)]),
    min_backoff=st.just(timedelta(seconds=1)),
    max_backoff=st.just(timedelta(seconds=6)),
    max_doublings=st.integers(0, 3),
)
RATES = st.builds(
    RateLimits,
    max_dispatches_per_second=st.sampled_from([1.0, 500.0]),
    max_concurrent_dispatches=st.integers(1, 3),
)


class Model:
    """The properties of each task, in the plainest way."""

    def __init__(self, retry: RetryConfig) -> None:
        self.retry = retry
        self.due: dict[str, datetime] = {}
        self.attempts: dict[str, int] = {}
        self.first: dict[str, datetime] = {}
        self.faults: dict[str, Fault | None] = {}
        self.unheard: set[int] = set()
        self.done: set[str] = set()

    def starts(self, attempt: Attempt, now: datetime) -> None:
        name = attempt.task.name
        assert name not in self.done
        assert now >= self.due[name]
        assert attempt.retries == self.attempts.get(name, 0)
        self.attempts[name] = attempt.retries + 1
        self.first.setdefault(name, now)
        if self.faults[name] is Fault.OVERLAPPING:
            self.faults[name] = None
            self.unheard.add(attempt.number)

    def ends(
        self, attempt: Attempt, result: DeliveryResult, now: datetime, again: datetime | None
    ) -> None:
        name = attempt.task.name
        if attempt.number in self.unheard:
            assert again is None
        elif self.faults[name] is Fault.TWICE:
            self.faults[name] = None
            self.attempts[name] -= 1
            assert again == now
        elif result.is_success or self.retry.gives_up(self.attempts[name], now - self.first[name]):
            assert again is None
            self.done.add(name)
        else:
            self.due[name] = now + self.retry.wait(self.attempts[name])
            assert again == self.due[name]


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(TASKS, RETRIES, RATES, st.data())
def test_no_task_is_lost_or_early_and_attempts_and_waits_follow_the_model(
    tasks: list[tuple[int, Fault | None]], retry: RetryConfig, rate: RateLimits, data: st.DataObject
) -> None:
    queue = Queue("p/queues/q", QueueSettings(retry, rate), NOW)
    model = Model(retry)
    running: list[Attempt] = []
    now = NOW
    for number, (after, kind) in enumerate(tasks):
        name = f"t{number}"
        model.due[name] = NOW + timedelta(seconds=after)
        model.faults[name] = kind
        fault = OrderedFault(kind, None, "", 2) if kind else None
        queue.add(HttpTask(name, "http://worker", model.due[name]), NOW, fault)

    for _ in range(400):
        while attempt := queue.start(now):
            model.starts(attempt, now)
            running.append(attempt)
        assert queue.running <= rate.max_concurrent_dispatches
        later = queue.next_time()
        if running and (later is None or data.draw(st.booleans())):
            ended = running.pop(data.draw(st.integers(0, len(running) - 1)))
            result = DeliveryResult(data.draw(STATUSES))
            model.ends(ended, result, now, queue.finished(ended, result, now))
        elif later is None:
            break
        else:
            assert later > now
            now = later

    assert set(queue.tasks) == set(model.due) - model.done
    if not running and queue.next_time() is None:
        assert model.done == set(model.due)
